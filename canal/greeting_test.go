package canal

import (
	"log/slog"
	"net"
	"strconv"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A51: the greeting comes before encryption. A damaged greeting counts as a lost connection.
func TestA51_DamagedGreeting(t *testing.T) {
	greetings := map[string]string{
		"cut behind the protocol": "\x0a", "no end of the version": "\x0a9.7.4", "cut in the scramble": "\x0a9.7.4\x00\x01\x00\x00\x00abcd",
		"no end of the plugin": "\x0a9\x00\x01\x00\x00\x00abcdefgh\x00\xff\xff\xff\x02\x00\xff\xdf\x15" + "0123456789" + "abcdefghijkl\x00caching",
	}
	for name, greeting := range greetings {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				if conn, err := l.Accept(); err == nil {
					_, _ = conn.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...))
					_ = conn.Close()
				}
			}()
			_, port, err := net.SplitHostPort(l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
				ServerID: 7, Flavor: "mysql", Host: "127.0.0.1", Port: uint16(n), User: "relay", Logger: slog.New(slog.DiscardHandler),
			})
			_, err = new(stream).start(syncer, server.Info{}, outbox.Position{File: "binlog.000001", Offset: 4})
			if kind, _ := classOf(err); err == nil || kind != classLost {
				t.Errorf("%v is %s", err, kind)
			}
		})
	}
}
