package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// BenchmarkShards compares the cost of a message for a relay of one table and a relay of 64 tables of a pattern, on one server.
// Each also skips the other's rows in the log.
func BenchmarkShards(b *testing.B) {
	p := newPair(b, testkit.MySQL, 64)
	p.name = "shards"
	p.each(b, steady, burst, drain)
}

// BenchmarkTables compares one table and eight while another application makes ten updates per outbox row, each a transaction.
func BenchmarkTables(b *testing.B) {
	p := newPair(b, testkit.MySQL, 8)
	p.name = "tables"
	p.one.among(b, 10)
	p.many.among(b, 10)
	p.each(b, drainAmong)
}

// BenchmarkHistory compares a server whose GTID set has 5,000 intervals, as after years of failovers (A60), with one whose set has one.
func BenchmarkHistory(b *testing.B) {
	p := &pair{name: "history"}
	for _, s := range []**spread{&p.one, &p.many} {
		f := newFixture(b, testkit.MySQL, "fake")
		*s = &spread{fixture: f, tables: []*relay.Table{f.table}}
	}
	var set strings.Builder
	set.WriteString("+3e11fa47-71ca-11e1-9e33-c80aa9429562")
	for i := range 5000 {
		fmt.Fprintf(&set, ":%d-%d", i*1000+1, i*1000+500)
	}
	testkit.Exec(b, p.many.db.Root(), "SET GLOBAL gtid_purged = ?", set.String())
	p.each(b, steady, drain)
}

// newPair returns two relays on one server and one broker: of one table, and of a number of tables of a pattern.
func newPair(b *testing.B, flavor testkit.Flavor, tables int) *pair {
	b.Helper()
	f := newFixture(b, flavor, "kafka")
	one := &spread{fixture: f, tables: []*relay.Table{f.table}}
	other := *f
	other.relay(b, f.db.Addr())
	many := &spread{fixture: &other}
	for n := range tables {
		many.tables = append(many.tables, f.table.Like(b, fmt.Sprintf("shard_%02d", n)))
	}
	other.Edit(b, f.table.FullName(), fmt.Sprintf("%s.shard_{00..%02d}", f.table.Schema, tables-1))
	return &pair{one: one, many: many}
}
