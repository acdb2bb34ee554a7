package canal

import (
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
