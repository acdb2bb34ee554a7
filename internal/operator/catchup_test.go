package operator

import (
	"testing"
	"time"
)

// The estimate is by the change over the last two minutes, of the slower of log and table. A backlog that grows, or whose size is not known, has none.
func TestG46_HowLongTheBacklogTakes(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		lag, lagChange   float64 // at the end, and in each second
		rows, rowsChange int64
		capped           bool
		want             float64 // seconds; -1: not known, -2: no backlog
	}{
		"no backlog":                {0.1, 0, 20, 0, false, -2},
		"the log":                   {600, -5, 0, 0, false, 120},
		"the table":                 {0, 0, 40_000, -200, false, 200},
		"the slower one counts":     {600, -5, 40_000, -200, false, 200},
		"a lag that grows":          {600, 1, 40_000, -200, false, -1},
		"rows that do not shrink":   {0, 0, 40_000, 0, false, -1},
		"more rows than counted":    {0, 0, 100_000, -200, true, -1},
		"few rows and a long log":   {600, -5, 100, 50, false, 120},
		"a small lag and many rows": {1, 1, 40_000, -200, false, 200},
	} {
		var trend Trend
		var st Status
		for s := -300; s <= 0; s += 10 {
			lag := c.lag + c.lagChange*float64(s)
			table := TableStatus{Rows: map[string]int64{"pending": c.rows + c.rowsChange*int64(s)}, Kinds: map[string]string{"pending": "exact"}}
			if c.capped {
				table.Kinds["pending"] = "at_least"
			}
			st = Status{Source: SourceStatus{LagSeconds: &lag}, Tables: []TableStatus{table}}
			trend.Show(&st, start.Add(time.Duration(s)*time.Second))
		}
		got := -2.0
		if st.CatchUp != nil {
			if got = -1; st.CatchUp.Seconds != nil {
				got = *st.CatchUp.Seconds
			}
		}
		if got < c.want-0.5 || got > c.want+0.5 {
			t.Errorf("%s: %v s, want %v", name, got, c.want)
		}
	}
}
