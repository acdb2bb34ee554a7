package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Settings of the server that are changed while the reader works are reported with the effect and what to do, until they are
// restored. A setting that was wrong at the start is only a warning of doctor.
func TestG34_SettingsThatAreChangedWhileItRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		testkit.Exec(t, l.db.Root(), "SET GLOBAL sync_binlog = 0") // before the start
		l.start(l.end())
		l.insert("a")
		l.published(1)
		shown := func() string { return strings.Join(l.reader.State().Settings, "\n") }
		l.wait("the first look", func() bool { return l.reader.gauge.looked() })
		if got := shown(); got != "" {
			t.Fatalf("at the start: %q", got)
		}
		for _, c := range []struct{ set, back, words string }{
			{"binlog_format = 'STATEMENT'", "binlog_format = 'ROW'", "binlog_format: the binlog holds statements"},
			{"binlog_format = 'MIXED'", "binlog_format = 'ROW'", "binlog_format: some rows may be logged as statements"},
			{"binlog_row_image = 'MINIMAL'", "binlog_row_image = 'FULL'", "binlog_row_image: inserts are logged without"},
		} {
			testkit.Exec(t, l.db.Root(), "SET GLOBAL "+c.set)
			l.wait(c.set+" to be seen", func() bool { return strings.Contains(shown(), c.words) })
			if text := shown(); !strings.Contains(text, "SET GLOBAL "+strings.SplitN(c.back, " ", 2)[0]) || metric(t, l.reg, "canal_outbox_source_settings") != 1 {
				t.Errorf("%q, or the metric, does not say what to do", text)
			}
			testkit.Exec(t, l.db.Root(), "SET GLOBAL "+c.back)
			l.wait("no wrong setting", func() bool { return shown() == "" })
		}
		if metric(t, l.reg, "canal_outbox_source_settings") != 0 {
			t.Error("the metric still shows a problem")
		}
	})
}

// A server that becomes read-only, gets another identity, or is restarted with a filter of its binlog is reported like a changed setting.
// The filter is a warning, and is reported because the first check did not find it.
func TestG34_ReadOnlyIdentityAndFilterAreAskedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		testkit.CheckLeaks(t)
		l := makeLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		l.start(l.end())
		shown := func() string { return strings.Join(l.reader.State().Settings, "\n") }
		l.wait("the first look", func() bool { return l.reader.gauge.looked() })
		for _, c := range []struct{ set, back, words string }{
			{"read_only = 1", "read_only = 0", "read_only: the server is read-only"},
			{"server_id = 77", fmt.Sprintf("server_id = %d", l.db.Port()), "server_id: the server was "},
		} {
			testkit.Exec(t, l.db.Root(), "SET GLOBAL "+c.set)
			l.wait(c.set+" to be seen", func() bool { return strings.Contains(shown(), c.words) })
			testkit.Exec(t, l.db.Root(), "SET GLOBAL "+c.back)
			l.wait("nothing wrong", func() bool { return shown() == "" })
		}
		l.db.MoreArgs = []string{"--binlog-do-db=elsewhere"}
		testkit.Must(t, l.db.Stop())
		testkit.Must(t, l.db.Start(t.Context()))
		l.wait("the filter to be seen", func() bool { return strings.Contains(shown(), "binlog_do_db: the binlog is filtered (elsewhere)") })
		if metric(t, l.reg, "canal_outbox_source_settings") != 1 {
			t.Error("the metric does not show the filter")
		}
	})
}
