package testkit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const childVariable = "TESTKIT_TEST_CHILD"

// TestMain also plays the process that is killed in TestServersDieWithAKilledProcess.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
	}
	Main(m)
}

// child starts a server, prints its process id and directory, and waits to be killed.
func child() {
	d, err := StartDatabase(context.Background(), DatabaseOptions{Flavor: MariaDB})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(d.PID(), d.Dir())
	select {}
}

func TestServersDieWithAKilledProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	stdout, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	Must(t, err)
	var pid int
	var dir string
	if _, err := fmt.Sscan(line, &pid, &dir); err != nil {
		t.Fatalf("the child says %q", line)
	}
	Must(t, syscall.Kill(pid, 0))
	Must(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("the child was not killed")
	}
	WaitFor(t, 20*time.Second, "the server to die with its parent", func() bool { return !alive(pid) })
	d, err := StartDatabase(t.Context(), DatabaseOptions{Flavor: MariaDB})
	Must(t, err)
	Must(t, d.Close())
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s was not removed by the next start: %v", dir, err)
	}
}

// alive reports whether a process runs. An orphan without a parent to reap it stays in the table as a zombie, which is not alive.
func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	var id int
	var name, state string
	if _, err := fmt.Sscan(string(status), &id, &name, &state); err != nil {
		return true
	}
	return state != "Z" && state != "X"
}
