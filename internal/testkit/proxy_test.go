package testkit

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// echo is a server that answers each connection with greeting, then with all it gets.
func echo(t *testing.T, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.WriteString(conn, greeting)
				io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	Must(t, err)
	t.Cleanup(func() { conn.Close() })
	Must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return conn
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; expected %q", got, err, want)
	}
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	Must(t, err)
}

func TestProxyPassesAndSwitches(t *testing.T) {
	p := NewProxy(t, echo(t, "one"))
	first := dial(t, p.Addr())
	expect(t, first, "one")
	p.SetTarget(echo(t, "two"))
	expect(t, dial(t, p.Addr()), "two")
	send(t, first, "hello")
	expect(t, first, "hello")
	if p.Connections() != 2 {
		t.Errorf("%d connections", p.Connections())
	}
	first.Close()
	WaitFor(t, 10*time.Second, "the connection's end to pass", func() bool { return p.Connections() == 1 })
}

func TestProxyCut(t *testing.T) {
	p := NewProxy(t, echo(t, "one"))
	conn := dial(t, p.Addr())
	expect(t, conn, "one")
	p.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a cut connection says %v", err)
	}
	expect(t, dial(t, p.Addr()), "one")
}

func TestProxyCutAfter(t *testing.T) {
	p := NewProxy(t, echo(t, "0123456789"))
	other := dial(t, p.Addr())
	expect(t, other, "0123456789")
	done := p.CutAfter(14)
	send(t, other, "abcd")
	expect(t, other, "abcd")
	conn := dial(t, p.Addr())
	expect(t, conn, "0123456789")
	<-done
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d more bytes after the cut", n)
	}
	if n, err := other.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes on the other connection after the cut", n)
	}
	expect(t, dial(t, p.Addr()), "0123456789")
}

func TestProxyCutAfterInsideAChunk(t *testing.T) {
	p := NewProxy(t, echo(t, "0123456789"))
	done := p.CutAfter(4)
	got, err := io.ReadAll(dial(t, p.Addr()))
	if err != nil || string(got) != "0123" {
		t.Fatalf("read %q, %v", got, err)
	}
	<-done
}

func TestProxyHole(t *testing.T) {
	p := NewProxy(t, echo(t, "one"))
	conn := dial(t, p.Addr())
	expect(t, conn, "one")
	p.Hole(true)
	send(t, conn, "hello")
	fresh := dial(t, p.Addr())
	for _, c := range []net.Conn{conn, fresh} {
		Must(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes through the hole, %v", n, err)
		}
		Must(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	}
	p.Hole(false)
	expect(t, conn, "hello")
	expect(t, fresh, "one")
}

func TestProxyRefuse(t *testing.T) {
	p := NewProxy(t, echo(t, "one"))
	old := dial(t, p.Addr())
	expect(t, old, "one")
	Must(t, p.Refuse(true))
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a refusing proxy says %v", err)
	}
	send(t, old, "still")
	expect(t, old, "still")
	Must(t, p.Refuse(false))
	expect(t, dial(t, p.Addr()), "one")
}

func TestProxyLatency(t *testing.T) {
	p := NewProxy(t, echo(t, ""))
	conn := dial(t, p.Addr())
	p.Latency(50 * time.Millisecond)
	begin := time.Now()
	send(t, conn, "hello")
	expect(t, conn, "hello")
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Fatalf("there and back in %v", d)
	}
}

func TestProxyToNowhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	addr := l.Addr().String()
	l.Close()
	p := NewProxy(t, addr)
	conn, err := net.DialTimeout("tcp", p.Addr(), 10*time.Second)
	if err == nil {
		defer conn.Close()
		Must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) { // the reset may come so early that the dial sees it
		t.Fatalf("a proxy without a server says %v", err)
	}
}
