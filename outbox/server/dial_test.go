package server

import (
	"io"
	"net"
	"testing"
	"time"
)

// A51: the greeting comes before encryption. One that was damaged is an ordinary loss of the connection, and the socket is
// closed.
func TestA51_DamagedGreeting(t *testing.T) {
	for name, greeting := range map[string]string{
		"cut behind the protocol": "\x0a", "cut in the scramble": "\x0a9.7.4\x00\x01\x00\x00\x00abcd",
		"cut in the capabilities": "\x0a9\x00\x01\x00\x00\x00abcdefgh\x00\xff",
		"cut behind the lengths":  "\x0a9\x00\x01\x00\x00\x00abcdefgh\x00\xff\xff\xff\x02\x00\xff\xdf\x150123456789abc",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			hungUp := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					_, _ = conn.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...))
					_ = conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
					_, err = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
				hungUp <- err
			}()
			db, err := Open(Config{Address: l.Addr().String(), User: "relay"}, nil, Session{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.PingContext(t.Context()); Classify(err) != Lost {
				t.Errorf("%v is %s", err, Classify(err))
			}
			if err := <-hungUp; err != nil {
				t.Errorf("the socket is left open: %v", err)
			}
		})
	}
}
