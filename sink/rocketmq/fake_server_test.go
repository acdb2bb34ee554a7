package rocketmq

import (
	"net"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// fakeServer is a listener that can be stopped, started again on its port, and frozen.
type fakeServer struct {
	t      testing.TB
	addr   string
	handle func(h remoting.Header, body []byte) (remoting.Header, []byte, reply)

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	frozen   chan struct{} // closed when not frozen
	accepted int
	work     sync.WaitGroup
}

func newFakeServer(t testing.TB, handle func(remoting.Header, []byte) (remoting.Header, []byte, reply)) *fakeServer {
	s := &fakeServer{t: t, addr: testkit.FreeAddress(t), handle: handle, conns: map[net.Conn]bool{}, frozen: make(chan struct{})}
	close(s.frozen)
	s.start()
	t.Cleanup(func() {
		s.stop()
		s.thaw()
		s.work.Wait()
	})
	return s
}

func (s *fakeServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := testkit.Listen(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = l
	s.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.accepted++
			s.mu.Unlock()
			s.work.Go(func() { s.serve(conn) })
		}
	})
}

// stop refuses connections and resets existing ones.
func (s *fakeServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for conn := range s.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	clear(s.conns)
}

// freeze accepts but answers nothing until thaw, like a stopped process.
func (s *fakeServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = make(chan struct{})
}

func (s *fakeServer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.frozen:
	default:
		close(s.frozen)
	}
}

func (s *fakeServer) gate() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}

func (s *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	var write sync.Mutex
	for {
		<-s.gate()
		h, body, err := remoting.ReadFrame(conn)
		if err != nil {
			return
		}
		s.work.Go(func() {
			<-s.gate()
			answer, payload, how := s.handle(h, body)
			if how.cut {
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
			if how.swallow || how.cut {
				return
			}
			write.Lock()
			defer write.Unlock()
			_ = remoting.WriteFrame(conn, answer.To(h), payload) // the client may be gone
		})
	}
}
