package relay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildCommit builds the program of a commit of a repository. The repository stays as it is. ErrNoCommit: its history is not here.
func BuildCommit(repository, commit, program string) (err error) {
	source := program + "-source"
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	if err := export(repository, commit, source); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/canal-outbox")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	return output(cmd)
}

// ErrNoCommit reports a commit that the repository does not have, as a shallow clone.
var ErrNoCommit = errors.New("git has no such commit here: name one that `git log` shows, or fetch it first")

// export writes the files of a commit into a new directory. The repository stays as it is.
func export(repository, commit, into string) error {
	if _, err := exec.LookPath("git"); err != nil {
		return fmt.Errorf("%w: install git", err)
	}
	git := func(args ...string) error {
		return output(exec.Command("git", append([]string{"-C", repository}, args...)...))
	}
	if err := git("rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{commit}"); err != nil {
		return ErrNoCommit
	}
	if err := os.MkdirAll(into, 0o700); err != nil {
		return err
	}
	archive, err := filepath.Abs(into + ".tar")
	if err != nil {
		return err
	}
	err = git("archive", "--format=tar", "--output="+archive, commit)
	if err == nil {
		err = output(exec.Command("tar", "-xf", archive, "-C", into))
	}
	return errors.Join(err, os.RemoveAll(archive))
}

// output runs a command and adds its output to its error.
func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
