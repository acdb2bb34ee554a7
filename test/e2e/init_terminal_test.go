package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// terminal is a program on a pseudo terminal.
type terminal struct {
	t       *testing.T
	file    *os.File
	cmd     *exec.Cmd
	lines   chan string // pieces of the output
	printed string
	looked  int // how far says has read it
}

func newTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(relay.Binary(t, ""), args...)
	cmd.Env = append(testkit.RelayEnvironment(), "CANAL_OUTBOX_ADMIN_LISTEN=")
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
	testkit.Must(t, err)
	o := &terminal{t: t, file: file, cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		defer close(o.lines)
		for {
			piece := make([]byte, 4096)
			n, err := file.Read(piece)
			o.lines <- string(piece[:n])
			if err != nil { // the program has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test failed
		_ = file.Close()
	})
	return o
}

// says waits until the program prints a text after what it printed before.
func (o *terminal) says(text string) {
	o.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(o.printed[o.looked:], text) {
		select {
		case piece, more := <-o.lines:
			if o.printed += piece; !more {
				o.t.Fatalf("the program ended without %q:\n%s", text, o.printed)
			}
		case <-limit:
			o.t.Fatalf("not printed: %q\n%s", text, o.printed)
		}
	}
	o.looked += strings.Index(o.printed[o.looked:], text) + len(text)
}

// types answers a question.
func (o *terminal) types(question, answer string) {
	o.t.Helper()
	o.says(question)
	_, err := o.file.WriteString(answer)
	testkit.Must(o.t, err)
}

// ends returns the exit code.
func (o *terminal) ends() int {
	for piece := range o.lines {
		o.printed += piece
	}
	_ = o.cmd.Wait() // the code says it
	return o.cmd.ProcessState.ExitCode()
}

// A person at a terminal: init asks, shows no password, and leaves the terminal as it was and no file when it is interrupted.
func TestInitOnATerminal(t *testing.T) {
	t.Parallel()
	db := testkit.SharedMySQL(t)
	schema := db.CreateSchema(t)
	testkit.Exec(t, db.Connect(t, schema), layouts.All()[0].Create())
	dir := t.TempDir()
	config := filepath.Join(dir, "canal-outbox.yaml")
	const password = "Canary-5e1f"
	testkit.Must(t, db.CreateUser(t.Context(), "typist", password, "SELECT, UPDATE ON "+schema+".*", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"))
	t.Cleanup(func() { testkit.Exec(t, db.Root(), "DROP USER typist") })

	o := newTerminal(t, "init", "--out", config, "--state", filepath.Join(dir, "state"))
	o.types("Address of the database", db.Addr()+"\n")
	o.types("Account that looks at it", "typist\n")
	o.types("Password of typist (not shown): ", "\x03") // Ctrl-C
	if code := o.ends(); code != 1 || !strings.Contains(o.printed, "interrupted: nothing was written") {
		t.Errorf("code %d:\n%s", code, o.printed)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files: %v, %v", entries, err)
	}

	o = newTerminal(t, "init", "--out", config, "--state", filepath.Join(dir, "state"))
	o.types("Address of the database", db.Addr()+"\n")
	o.types("Account that looks at it", "typist\n")
	o.types("Password of typist (not shown): ", "wrong\n")
	o.says("! source.user = \"typist\" (from --user)")
	o.types("Address of the database", "\n")
	o.types("Account that looks at it", "\n")
	o.types("Password of typist (not shown): ", password+"\n")
	o.says("preset t_local_message")
	o.types("Table (a number, or schema.table) [1]: ", "\n")
	o.types("Broker", "stdout\n")
	o.types("Write these files?", "y\n")
	o.says("next:")
	if code := o.ends(); code != 0 {
		t.Errorf("code %d:\n%s", code, o.printed)
	}
	if strings.Contains(o.printed, password) {
		t.Errorf("the password is shown:\n%s", o.printed)
	}
	written, err := os.ReadFile(filepath.Join(dir, "mysql-password"))
	if err != nil || string(written) != password+"\n" {
		t.Errorf("the file of the password: %q, %v", written, err)
	}
	t.Logf("the terminal:\n%s", o.printed)
}
