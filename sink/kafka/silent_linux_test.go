package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A host that does not answer a dial delays no request beyond its context: a stop would wait for it.
func TestRequestsEndWithTheirContext(t *testing.T) {
	s := newSink(t, silentHost(t), func(c *config) { c.times = patient })
	// The library dials for one request at a time; ours waits behind its own.
	go func() { _ = s.current().Ping(context.Background()) }() // until the sink is closed
	<-time.After(100 * time.Millisecond)
	for name, ask := range map[string]func(context.Context) error{
		"probe":  s.Probe,
		"topics": func(ctx context.Context) error { _, err := s.Topics(ctx, []string{"orders"}); return err },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- ask(ctx) }()
		select {
		case err := <-done:
			t.Fatalf("%s: the host is not silent: %v", name, err)
		case <-time.After(300 * time.Millisecond): // long enough for a dial to start
		}
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience): // the dial lasts longer
			t.Fatalf("%s continues after its context has ended", name)
		}
	}
}

// silentHost returns the address of a socket whose queue is full: the kernel drops further connection attempts.
func silentHost(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, syscall.Close(fd)) })
	testkit.Must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	testkit.Must(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	testkit.Must(t, err)
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("bound to %T", name)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.Port)
	for range 20 {
		conn, err := net.DialTimeout("tcp", address, 500*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue does not fill")
	return ""
}
