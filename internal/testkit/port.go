package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/canal-outbox/canal-outbox/test/servers"
)

// Ports are taken from below the range the kernel gives to outgoing connections (32768 up, by default), so that no
// orphaned connection sits on a server's port while the server is down between Kill and Start.
const (
	lowestPort  = 15000
	highestPort = 31900
)

// ports is a set of neighbouring ports held against all other testkit processes with the same cache until release.
type ports struct {
	base  int
	locks []*os.File
}

// reservePorts finds a base such that base+offset is free for every offset. Only one that can be listened on now is
// taken.
func reservePorts(offsets ...int) (*ports, error) {
	cache, err := servers.Cache()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "ports")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("reserve ports: %w", err)
	}
	sweepPorts.Do(func() { removeUnlocked(dir) })
	for range 500 {
		p := &ports{base: lowestPort + rand.IntN(highestPort-lowestPort)}
		if p.take(dir, offsets) {
			return p, nil
		}
		p.release()
	}
	return nil, fmt.Errorf("no free ports between %d and %d on 127.0.0.1", lowestPort, highestPort)
}

var sweepPorts sync.Once

// removeUnlocked removes the files that killed processes left in the directory. A file that cannot be opened or removed stays, and the
// others go.
func removeUnlocked(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "[0-9]*")) // the pattern is valid
	for _, name := range files {
		lock, err := lockFile(name, false)
		if err != nil {
			continue // a process holds the port
		}
		if !removed(lock) {
			_ = os.Remove(name)
		}
		lock.Close()
	}
}

func (p *ports) take(dir string, offsets []int) bool {
	for _, offset := range offsets {
		port := strconv.Itoa(p.base + offset)
		lock, err := lockFile(filepath.Join(dir, port), false)
		if err != nil {
			return false
		}
		p.locks = append(p.locks, lock)
		if removed(lock) || !free(port) {
			return false
		}
	}
	return true
}

// removed reports whether the file has lost its name between its opening and its lock: then the lock guards nothing, because
// another process can make and lock a file of the same name.
func removed(lock *os.File) bool {
	opened, err := lock.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(lock.Name())
	return err != nil || !os.SameFile(opened, named)
}

// free reports whether a port has no listener, on any address.
func free(port string) bool {
	l, err := Listen(":" + port)
	return err == nil && l.Close() == nil
}

// Listen listens on a TCP address, which is free again as soon as the listener is closed.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

type listener struct{ *net.TCPListener }

// Close also ends what copies of the socket still listen: a process that is being started has copies of all sockets of this one
// until it executes its program.
func (l listener) Close() error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = syscall.Shutdown(int(fd), syscall.SHUT_RD) })
	return errors.Join(failed, err, l.TCPListener.Close())
}

// FreeAddress is an address of this machine without a listener. It is the test's until its end: no other test and no
// outgoing connection takes it before the test does, or between two times that the test listens there.
func FreeAddress(t T) string {
	t.Helper()
	p, err := reservePorts(0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(p.release)
	return loopback(p.base)
}

// ReservePorts is FreeAddress for several ports and for callers without a test, which give them back with release.
func ReservePorts(n int) (numbers []int, release func(), err error) {
	offsets := make([]int, n)
	for i := range offsets {
		offsets[i] = i
	}
	p, err := reservePorts(offsets...)
	if err != nil {
		return nil, func() {}, err
	}
	for i := range offsets {
		numbers = append(numbers, p.base+i)
	}
	return numbers, p.release, nil
}

// release gives the ports back and removes their files. A process that has opened such a file and locks it after the removal
// sees that in removed. The file of a killed process stays until the next process reserves its first port.
func (p *ports) release() {
	for _, lock := range p.locks {
		if !removed(lock) {
			_ = os.Remove(lock.Name()) // it is only a name: a file that stays does no harm
		}
		lock.Close()
	}
	p.locks = nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
