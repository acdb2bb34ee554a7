package canal

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestReadsInsertsInCommitOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.insert("a")
		l.insert("b")
		tx, err := l.sql.Begin()
		testkit.Must(t, err)
		for _, key := range []string{"c", "d"} {
			_, err = tx.Exec(insertRow, key, "x")
			testkit.Must(t, err)
		}
		testkit.Must(t, tx.Commit())
		if got := joined(l.published(4)); got != "a,b,c,d" {
			t.Fatalf("published %s", got)
		}
		m := l.rec.sent()[0]
		if m.Topic != "orders" || string(m.Body) != "body of a" || m.MessageID != "order:a" || m.Status != outbox.Pending ||
			m.Since.IsZero() || m.Path != outbox.PathBinlog {
			t.Fatalf("message %+v", m)
		}
		l.caughtUp()
	})
}

// A44: with and without encryption, with an account that has only the documented grants.
func TestA44_AccountAndEncryption(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "TLS 1.2")
		certificates, err := testkit.NewCertificates()
		testkit.Must(t, err)
		ca := filepath.Join(t.TempDir(), "ca.pem")
		testkit.Must(t, os.WriteFile(ca, certificates.CA, 0o600))
		db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, TLS: certificates})
		l := newLab(t, db)
		testkit.Must(t, db.CreateUser(context.Background(), "reader", "secret", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT ON "+l.schema+".*"))
		for i, mode := range []server.TLSMode{server.TLSRequired, server.TLSPreferred, server.TLSVerifyCA, server.TLSVerifyIdentity, server.TLSDisabled} {
			l.start(l.end(), func(c *Config) {
				c.Server.User, c.Server.Password = "reader", setting.NewSecret("secret")
				testkit.Must(t, c.Server.SetTLS(mode, server.TLSFiles{CA: setting.NewFile(ca)}))
			})
			l.insert(string(mode))
			l.published(i + 1)
			l.stop()
		}
	})
}

// The mode preferred continues without encryption when the server has no TLS.
func TestPreferredEncryptionOfAServerWithout(t *testing.T) {
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	l := newLab(t, db)
	l.start(l.end(), func(c *Config) { testkit.Must(t, c.Server.SetTLS(server.TLSPreferred, server.TLSFiles{})) })
	l.insert("a")
	l.published(1)
}

// A wrong password is retried slowly and shown, and never printed.
func TestAccessDenied(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		core, lines := observer.New(zap.DebugLevel)
		l.log = zap.New(core)
		l.launch(l.end(), func(c *Config) { c.Server.User, c.Server.Password = "unknown", setting.NewSecret("canary-password") })
		l.wait("a second attempt", func() bool { return metric(t, l.reg, "canal_outbox_reconnects_total") > 1 })
		if s := l.reader.State(); s.Connected || s.Error == "" {
			t.Errorf("state %+v", s)
		}
		if lines.FilterField(zap.String("class", "access")).Len() != 1 {
			t.Errorf("log %v", lines.All())
		}
		if text := fmt.Sprint(lines.All()); strings.Contains(text, "canary") {
			t.Error("the password is in the log")
		}
	})
}

// A position that an operator gives by file and offset gets its GTID set: with an empty set everything before it would come again
// after a restart.
func TestPositionByFileIsCompleted(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.Needs(t, flavor, "8.3", "tagged GTIDs")}))
		l.insert("a")
		l.exec("FLUSH BINARY LOGS")
		empty := l.end()
		if flavor == testkit.MySQL {
			l.session("SET gtid_next = 'AUTOMATIC:app'", rowSQL("b"), "SET SESSION binlog_transaction_compression = ON", rowSQL("c"))
		} else {
			l.session("SET gtid_domain_id = 7", rowSQL("b"), rowSQL("c"))
		}
		middle := l.end()
		l.insert("d")
		last := l.end()
		for _, c := range []struct {
			at   outbox.Position
			keys string
		}{{empty, "b,c,d"}, {middle, "d"}, {last, ""}} {
			l.rec = nil
			l.start(outbox.Position{File: c.at.File, Offset: c.at.Offset})
			l.caughtUp()
			if from := l.rec.streams()[0].from; from != c.at {
				t.Errorf("started from %s %s, want %s %s", from, from.GTIDs, c.at, c.at.GTIDs)
			}
			if got := joined(l.rec.keys()); got != c.keys {
				t.Errorf("published %q behind %s, want %q", got, c.at, c.keys)
			}
			l.stop()
		}
	})
}

// Another server may answer long before the next attempt is due.
func TestLookAgainEndsTheWaitForTheNextAttempt(t *testing.T) {
	full, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer full.Close()
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := full.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			_, _ = conn.Write([]byte("\x17\x00\x00\x00\xff\x10\x04Too many connections")) // an error that the driver does not try again
			_ = conn.Close()
		}
	}()
	r := New(Config{
		Server: server.Config{Address: full.Addr().String(), User: "root"}, MinBackoff: 1000 * time.Hour, MaxBackoff: 1000 * time.Hour,
	}, &recorder{}, zap.NewNop(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, outbox.Position{}) }()
	for n := range int64(3) {
		testkit.WaitFor(t, 20*time.Second, "an attempt", func() bool { return attempts.Load() > n })
		r.LookAgain()
	}
	cancel()
	testkit.Must(t, <-ended)
}
