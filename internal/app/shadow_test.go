package app

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A shadow writes nothing, so it needs no right to write: it starts, reads the rows in its recovery window and those of the log, and sees the marks
// of the other sender, with SELECT alone. A relay on the same account does not start.
func TestG25_ShadowNeedsNoUpdate(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "reading", func(flavor testkit.Flavor, schema string) []string {
				rights := relayGrants(flavor, schema)
				return []string{rights[0], "SELECT ON " + schema + ".*"}
			})
			dir, err := os.MkdirTemp("", "canal-outbox-") // not t.TempDir, whose long names do not fit into a socket's address
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
			cfg.Checkpoint.Dir, cfg.Admin.Listen = dir, ""
			name := cfg.Tables[0].Name
			insert := "INSERT INTO " + name + " (biz_type, biz_key, topic, message_body) VALUES ('o', ?, 't', 'x')"
			testkit.Exec(t, db.Root(), insert, "before")

			ends := func(shadow bool, f func(d *instance)) (logged string) {
				core, lines := observer.New(zap.WarnLevel)
				d := newInstance(newProcess(cfg, Options{Version: "test", Shadow: shadow}, zap.New(core)))
				err := d.open(t.Context())
				if !shadow {
					if err == nil || !strings.Contains(err.Error(), "may not: UPDATE on") {
						t.Errorf("a relay that writes: %v", err)
					}
					_ = d.close()
					return ""
				}
				testkit.Must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended, watched := make(chan error, 1), make(chan error, 1)
				go func() { ended <- d.relay.Run(ctx) }()
				go func() { watched <- d.shadow.Run(ctx) }()
				testkit.WaitFor(t, time.Minute, "the binlog to be read", func() bool { return d.relay.Ready() && d.reader.State().Connected })
				f(d)
				cancel()
				testkit.Must(t, <-ended)
				testkit.Must(t, <-watched)
				testkit.Must(t, d.close())
				for _, l := range lines.All() {
					logged += l.Message + " "
					for _, field := range l.Context {
						if err, is := field.Interface.(error); is {
							logged += err.Error() + " "
						}
					}
				}
				return logged
			}
			logged := ends(true, func(in *instance) {
				testkit.Exec(t, db.Root(), insert, "after")
				testkit.WaitFor(t, time.Minute, "the row to be counted", func() bool { return in.shadow.Report().Sent == 1 })
			})
			testkit.Exec(t, db.Root(), insert, "meanwhile") // lies in the recovery window of the next start
			logged += ends(true, func(in *instance) {
				testkit.WaitFor(t, time.Minute, "the row to be counted", func() bool { return in.shadow.Report().Sent >= 1 })
				testkit.Exec(t, db.Root(), "UPDATE "+name+" SET status = 2")
				testkit.WaitFor(t, time.Minute, "the mark to be seen", func() bool { return in.shadow.Report().Marked >= 1 })
			})
			if strings.Contains(logged, "denied") {
				t.Errorf("the server refused a statement: %s", logged)
			}
			ends(false, nil)
		})
	}
}
