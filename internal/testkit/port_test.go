package testkit

import (
	"os/exec"
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
