package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// A port that was reserved, or listened on before, can be listened on at once, whatever processes are being started meanwhile.
func TestPortsBesideProcessesThatStart(t *testing.T) {
	var work sync.WaitGroup
	ended := make(chan struct{})
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer work.Wait()
	defer close(ended)
	for range 2000 {
		p, err := reservePorts(0)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 2 {
			l, err := Listen(loopback(p.base))
			if err != nil {
				t.Errorf("time %d: %v", k+1, err)
				continue
			}
			Must(t, l.Close())
		}
		p.release()
	}
}

// A reservation leaves no file. A lock on a file that another process has removed meanwhile reserves nothing.
func TestPortsLeaveNoFiles(t *testing.T) {
	p, err := reservePorts(0, 1)
	Must(t, err)
	name, second := p.locks[0].Name(), p.locks[1].Name()
	if removed(p.locks[0]) {
		t.Error("a reserved port has no file")
	}
	late, err := os.Open(name) // as a process does that is just before its lock
	Must(t, err)
	defer late.Close()
	p.release()
	if !removed(late) {
		t.Error("a lock on the old file would reserve the port")
	}
	for _, path := range []string{name, second} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s stays: %v", path, err)
		}
	}
}

// The first reservation of a process removes the files of killed processes. It leaves the files of ports that are reserved.
func TestPortFilesOfKilledProcessesGo(t *testing.T) {
	dir := t.TempDir()
	left, held := filepath.Join(dir, "15000"), filepath.Join(dir, "15001")
	Must(t, os.WriteFile(left, nil, 0o600))
	lock, err := lockFile(held, false)
	Must(t, err)
	defer lock.Close()
	removeUnlocked(dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s stays: %v", left, err)
	}
	if removed(lock) {
		t.Error("the file of a reserved port is removed")
	}
}
