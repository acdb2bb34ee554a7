package operator

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Nothing that needs a person is only a number, and each problem says what, where, why and what to do next.
func TestProblems(t *testing.T) {
	sampled := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old, ahead := 3600.0, 28800.0
	problem := func(at time.Time) *RowProblem {
		return &RowProblem{Table: "shop.m", ID: "17", MessageID: "order:17", Class: "permanent", Reason: "too large", At: at}
	}
	for name, c := range map[string]struct {
		change func(*Status, *TableStatus)
		words  []string
	}{
		"nothing": {func(*Status, *TableStatus) {}, nil},
		"FAILED rows": {func(st *Status, table *TableStatus) {
			table.Rows["failed"], st.NewestFailed = 3, problem(sampled)
		}, []string{"3 rows of shop.m are FAILED", "id 17 (order:17), permanent: too large", "canal-outbox messages list --table shop.m", "FAILED rows"}},
		"G18: rows with an unknown status": {func(_ *Status, table *TableStatus) {
			table.Rows["held"], table.Rows["consumed"] = 3, 9
		}, []string{"3 rows of shop.m have a status that the configuration does not name", "never sends", "--status held", "Rows with an unknown status"}},
		"G18: rows in a named state of the owners": {func(_ *Status, table *TableStatus) { table.Rows["consumed"] = 9 }, nil},
		"a FAILED row of an earlier run": {func(_ *Status, table *TableStatus) {
			table.Rows["failed"] = 1
		}, []string{"1 row of shop.m is FAILED; list them with: canal-outbox messages list --table shop.m"}},
		"a FAILED row that no sample has counted": {func(st *Status, _ *TableStatus) {
			st.NewestFailed = problem(sampled.Add(time.Second))
		}, []string{"a row of shop.m became FAILED", "too large"}},
		"a FAILED row that was set back": {func(st *Status, _ *TableStatus) {
			st.NewestFailed = problem(sampled.Add(-time.Second))
		}, nil},
		"as many as are counted": {func(_ *Status, table *TableStatus) {
			table.Rows["failed"], table.Kinds["failed"] = 100_000, "at_least"
		}, []string{"100000 or more rows"}},
		"unwritable rows": {func(st *Status, _ *TableStatus) {
			st.Unwritable, st.NewestUnwritable = 2, problem(sampled)
		}, []string{"2 published row(s)", "shop.m, id 17 (order:17): too large", "Rows that cannot be written"}},
		"an old claim": {func(_ *Status, table *TableStatus) {
			table.OldestSendingSeconds = &old
		}, []string{"shop.m is SENDING", "1h0m0s", "Claims"}},
		"rows made ahead of the clock": {func(_ *Status, table *TableStatus) {
			table.CreatedAheadSeconds = &ahead
		}, []string{"8h0m0s ahead of the database's clock", "time_zone"}},
		"another relay": {func(st *Status, _ *TableStatus) {
			st.OtherRelays = []OtherRelay{{Table: "shop.m", Connection: 12, From: "10.0.0.5:4711"}}
		}, []string{"published twice", "shop.m (connection 12 from 10.0.0.5:4711)", "stop one"}},
		"a topic": {func(st *Status, _ *TableStatus) {
			st.Sink.SuspendedTopics = []SuspendedTopic{{Topic: "orders", Reason: "unknown"}}
		}, []string{"topic orders is suspended", "unknown"}},
		"the broker": {func(st *Status, _ *TableStatus) {
			st.Sink.Breaker, st.Sink.Reason = "open", "no route"
		}, []string{"takes no messages", "no route"}},
		"G14: a reader that is stuck": {func(st *Status, _ *TableStatus) {
			st.Source.State, st.Source.Error = "stuck", "stuck since 2026 at the event behind binlog.000007:4"
		}, []string{"the binlog is not being read: stuck since", "The binlog is not read"}},
		"G34: a setting of the server": {func(st *Status, _ *TableStatus) {
			st.Source.Settings = []string{"binlog_format: the binlog holds statements; fix: SET GLOBAL binlog_format = 'ROW'"}
		}, []string{"the server's binlog_format: the binlog holds statements", "fix: SET GLOBAL", "Settings of the server"}},
		"G37: a disk that is nearly full": {func(st *Status, _ *TableStatus) {
			st.StateFreeBytes = new(int64(LowSpace - 1))
		}, []string{"only 255 MiB are free", "checkpoint.dir", "The disk is full"}},
		"a disk with room": {func(st *Status, _ *TableStatus) { st.StateFreeBytes = new(int64(LowSpace)) }, nil},
		"G39: a lapsed lease": {func(st *Status, _ *TableStatus) {
			st.Lease.State, st.Lease.Error = "lapsed", "i/o timeout"
			st.Sink.Breaker, st.Sink.Reason = "lease-not-held", "this relay may not publish now"
		}, []string{"the lease could not be renewed in time", "i/o timeout", "Active and standby"}},
		"the binlog": {func(st *Status, _ *TableStatus) {
			st.Source.State, st.Source.Error = "waiting", "access denied"
		}, []string{"not being read: access denied"}},
		"a server id that is used twice": {func(st *Status, _ *TableStatus) { st.Source.Warning = "used twice" }, []string{"used twice"}},
		"a gap":                          {func(st *Status, _ *TableStatus) { st.GapsOpen = 1 }, []string{"gaps list"}},
	} {
		table := TableStatus{Name: "shop.m", Rows: map[string]int64{"pending": 5}, Kinds: map[string]string{}, SampledAt: &sampled}
		st := Status{Source: SourceStatus{State: "connected"}, Sink: SinkStatus{Breaker: "closed"}}
		c.change(&st, &table)
		st.Tables = []TableStatus{table}
		Judge(&st, nil)
		if (c.words == nil) != (st.State == "working") || len(st.Problems) > 1 {
			t.Errorf("%s: %s %q", name, st.State, st.Problems)
		}
		for _, p := range st.Problems {
			if !strings.Contains(p, "; what to do: docs/operations/") {
				t.Errorf("%s: %q names no section of the handbook", name, p)
			}
		}
		for _, word := range c.words {
			if text := strings.Join(st.Problems, "\n"); !strings.Contains(text, word) {
				t.Errorf("%s: %q is not in %q", name, word, text)
			}
		}
	}
	st := Status{Source: SourceStatus{State: "connected"}, Sink: SinkStatus{Breaker: "closed"}}
	if Judge(&st, errors.New("no progress")); st.State != "stuck" || !strings.HasPrefix(st.Problems[0], "no progress; what to do") {
		t.Errorf("%s %q", st.State, st.Problems)
	}
}
