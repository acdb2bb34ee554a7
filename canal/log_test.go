package canal

import (
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A server that answers queries but refuses its log is one state over all attempts: one log line reports it, and no line says
// that the log is read. When it is read, one line says so.
func TestARefusedLogIsSaidOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		user, monitor := "refused_"+l.schema, "REPLICATION CLIENT"
		if flavor == testkit.MariaDB {
			monitor = "BINLOG MONITOR"
		}
		testkit.Exec(t, l.db.Root(), fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY 'x'", user))
		t.Cleanup(func() { testkit.Exec(t, l.db.Root(), fmt.Sprintf("DROP USER '%s'@'%%'", user)) })
		testkit.Exec(t, l.db.Root(), fmt.Sprintf("GRANT SELECT ON %s.* TO '%s'@'%%'", l.schema, user))
		testkit.Exec(t, l.db.Root(), fmt.Sprintf("GRANT %s ON *.* TO '%s'@'%%'", monitor, user))
		core, logs := observer.New(zap.InfoLevel)
		l.log = l.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, core) }))
		l.launch(l.end(), func(c *Config) { c.Server.User, c.Server.Password = user, setting.NewSecret("x") })
		l.wait("five attempts", func() bool { return metric(t, l.reg, "canal_outbox_reconnects_total") >= 5 })
		if l.reader.State().Connected {
			t.Error("the reader says that it is connected")
		}
		testkit.Exec(t, l.db.Root(), fmt.Sprintf("GRANT REPLICATION SLAVE ON *.* TO '%s'@'%%'", user))
		l.wait("a stream", func() bool { return l.reader.State().Connected })
		l.insert("a")
		l.published(1)
		l.stop()
		var lines []string
		for _, e := range logs.All() {
			lines = append(lines, e.Message)
		}
		if got := fmt.Sprintf("%q", lines); got != `["no binlog stream, trying again" "reading the binlog"]` {
			t.Error(got)
		}
	})
}
