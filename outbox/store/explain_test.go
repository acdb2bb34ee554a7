package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// What EXPLAIN says of the sweep, in a table of which most is SENT.
func TestExplainSweep(t *testing.T) {
	hide := map[testkit.Flavor]string{testkit.MySQL: "ALTER INDEX idx_sweep INVISIBLE", testkit.MariaDB: "ALTER INDEX idx_sweep IGNORED"}
	show := map[testkit.Flavor]string{testkit.MySQL: "ALTER INDEX idx_sweep VISIBLE", testkit.MariaDB: "ALTER INDEX idx_sweep NOT IGNORED"}
	for _, c := range []struct {
		name     string
		alter    func(testkit.Flavor) string
		severity server.Severity
		what     string
	}{
		{"the index of the DDL", nil, server.OK, "by the index idx_sweep"},
		{"status alone", always("DROP INDEX idx_sweep, ADD INDEX by_status (status)"), server.OK, "by the index by_status"},
		{"none", always("DROP INDEX idx_sweep"), server.Warning, "reads the whole table"},
		{"another first column", always("DROP INDEX idx_sweep, ADD INDEX by_time (next_retry_time, status)"), server.Warning, "reads the whole table"},
		{"no order of ours", always("DROP INDEX idx_sweep, ADD INDEX by_topic (status, topic)"), server.Warning, "sorts all rows that wait"},
		{"hidden", func(f testkit.Flavor) string { return hide[f] }, server.Warning, "reads the whole table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, "outbox", func(b *bench) {
				if c.name == "hidden" && b.Server.Before(8, 0) {
					b.Skip("MySQL 5.7 hides no index")
				}
				b.InsertMany(1000)
				testkit.Exec(b, b.DB, "UPDATE "+b.Quoted+" SET status=2 WHERE id <= 990")
				if c.alter != nil {
					testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" "+c.alter(b.Server.Flavor))
				}
				testkit.Exec(b, b.DB, "ANALYZE TABLE "+b.Quoted)
				f := b.explainSweep()
				if f.Severity != c.severity || !strings.Contains(f.What, c.what) || (f.Fix == "") != (c.severity == server.OK) {
					b.Fatalf("found %+v", f)
				}
				switch { // what fixes must do so
				case c.name == "hidden":
					if !strings.Contains(f.Fix, "`idx_sweep` VISIBLE (MariaDB: NOT IGNORED)") {
						b.Errorf("found %+v", f)
					}
					testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" "+show[b.Server.Flavor])
				case f.Fix != "":
					testkit.Exec(b, b.DB, f.Fix)
				}
				if f := b.explainSweep(); f.Severity != server.OK {
					b.Errorf("after what fixes it: %+v", f)
				}
			})
		})
	}
}

func always(alter string) func(testkit.Flavor) string {
	return func(testkit.Flavor) string { return alter }
}

// explainSweep binds the table again, as each doctor does.
func (b *bench) explainSweep() server.Finding {
	b.Helper()
	t, findings, err := table.Load(b.Ctx, b.DB, b.Mapping("outbox"))
	testkit.Must(b, err)
	if t == nil {
		b.Fatal(fmt.Sprint(findings))
	}
	f, err := ExplainSweep(b.Ctx, b.DB, t)
	testkit.Must(b, err)
	return f
}
