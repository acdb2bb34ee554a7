package relay

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The files of a commit are exported without a change in the repository, and errors are reported.
func TestAnOlderBuildsSource(t *testing.T) {
	repository, into := t.TempDir(), filepath.Join(t.TempDir(), "source")
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false", "commit", "--quiet", "--allow-empty", "-m", "empty"},
	} {
		testkit.Must(t, output(exec.Command("git", append([]string{"-C", repository}, args...)...)))
	}
	if err := export(repository, "0123456789ab", into); !errors.Is(err, ErrNoCommit) {
		t.Errorf("an unknown commit: %v", err)
	}
	testkit.Must(t, export(repository, "HEAD", into))
	left, err := os.ReadDir(filepath.Dir(into))
	testkit.Must(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	t.Setenv("PATH", "")
	if err := export(repository, "HEAD", into); err == nil || !strings.Contains(err.Error(), "install git") {
		t.Errorf("without git: %v", err)
	}
}
