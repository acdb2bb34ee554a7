package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/bench"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The measurement accounts for each row and reports the figures that it was asked for. It leaves neither its table nor a mark on
// the configured one, whose relay works at the same time.
func TestBench(t *testing.T) {
	relay.Long(t)
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fakekafka.New(t, 1, map[string]int{topics[0]: 4, topics[1]: 4, "measured": 4}), frequentSweeps)
		l.Start(t)
		const warm, steady, backlog = 200, 200, 3000
		out, errOut, code := l.Command(t, "bench", "--topic", "measured", "--rate", "200", "--time", "1s", "--backlog", "3000", "--yes", "-o", "json")
		var r bench.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Fatalf("code %d, %v\n%s%s", code, err, out, errOut)
		}
		if r.Messages != warm+steady+backlog || r.Steady.Rows != steady || r.Drain.Rows != backlog || r.Steady.Commit.P50 <= 0 || r.Steady.Rate <= 0 ||
			r.Steady.Published.Max < r.Steady.Published.P50 || r.Drain.Published <= 0 || r.Drain.Sent <= 0 || r.Drain.FirstSeconds <= 0 || r.Drain.CPUMicros <= 0 {
			t.Errorf("%+v", r)
		}
		if n := l.tables("canal_outbox_bench"); n != 0 {
			t.Errorf("%d tables are left", n)
		}
		l.load.Run(t, 100, 1)
		l.settled()
	})
}

// tables counts the tables of the schema with a name.
func (l *stage) tables(name string) (n int) {
	l.t.Helper()
	testkit.Must(l.t, l.sql.QueryRow("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", l.table.Schema, name).Scan(&n))
	return n
}

// What cannot be measured is reported before rows are written, and a run that fails leaves no table of its own.
func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	l := newStage(t, testkit.SharedMySQL(t), fake(t), "")
	l.exec("CREATE TABLE taken (id INT)")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--rate", "0"}, 2, "--rate 0: must be 1 or more"},
		{[]string{"--time", "0s"}, 2, "--time 0s: must be more than 0"},
		{[]string{"--backlog", "-1"}, 2, "--backlog -1: must be 0 or more"},
		{[]string{"--body", "0"}, 2, "--body 0: must be 1 or more"},
		{[]string{"--topic", ""}, 2, "--topic is empty"},
		{[]string{"--table", "nodot"}, 2, `--table "nodot": must be schema.table`},
		{nil, 3, "publishes 110500 messages to the topic canal_outbox_bench; add --yes"},
		{[]string{"--yes", "--topic", "never_created"}, 1, "create it, or name another one with --topic"},
		{[]string{"--yes", "--topic", topics[0], "--table", l.table.Schema + ".taken"}, 1, "exists: a run that was killed left it"},
		{[]string{"--yes", "--topic", topics[0], "--table", "no_such_schema.t"}, 1, "create the table no_such_schema.t"},
		{[]string{"--yes", "--topic", topics[0], "--rate", "10", "--time", "1s", "--backlog", "0", "--body", "2000000"}, 1, "a row became FAILED"},
	} {
		out, errOut, code := l.Command(t, append([]string{"bench"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("bench %v: code %d\n%s%s", c.args, code, out, errOut)
		}
	}
	if n := l.tables("canal_outbox_bench") + l.tables("taken"); n != 1 {
		t.Errorf("%d tables, want the one that was there", n)
	}
}
