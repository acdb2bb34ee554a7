package operator

import (
	"sync"
	"time"
)

const (
	// trendSpan is the time over which a backlog's change is measured. Rows are counted every 10 s or more seldom.
	trendSpan = 2 * time.Minute
	trendStep = 5 * time.Second
	// A backlog below both is no backlog.
	smallLag, smallBacklog = 10.0, 1000
)

// trendPoint is the backlog at one time.
type trendPoint struct {
	at    time.Time
	lag   float64
	rows  int64
	exact bool // rows were counted to the end
}

// Trend estimates how long the backlog will take, by how it changed over the last minutes. The zero value is ready. It is as good as the statuses
// that it is shown: the recorder of the history asks for one every ten seconds.
type Trend struct {
	mu   sync.Mutex
	past []trendPoint
}

// Show sets the estimate of a status whose lag and counts are set; nil when there is no backlog.
func (t *Trend) Show(st *Status, now time.Time) {
	p := trendPoint{at: now, exact: true}
	if st.Source.LagSeconds != nil {
		p.lag = *st.Source.LagSeconds
	}
	for _, table := range st.Tables {
		p.rows += table.Rows["pending"]
		p.exact = p.exact && table.Kinds["pending"] != "at_least"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.past) > 0 && now.Sub(t.past[0].at) > trendSpan {
		t.past = t.past[1:]
	}
	if n := len(t.past); n == 0 || now.Sub(t.past[n-1].at) >= trendStep {
		t.past = append(t.past, p)
	}
	if p.lag < smallLag && p.rows < smallBacklog {
		return
	}
	c := &CatchUp{LagSeconds: p.lag, Rows: p.rows, RowsAtLeast: !p.exact}
	if first := t.past[0]; now.Sub(first.at) >= 2*trendStep {
		span := now.Sub(first.at).Seconds()
		lag, rows := (first.lag-p.lag)/span, float64(first.rows-p.rows)/span
		c.LagPerSecond, c.RowsPerSecond = &lag, &rows
		c.Seconds = left(p, lag, rows)
	}
	st.CatchUp = c
}

// left is how long the slower of both takes; nil when one of them does not shrink, or its size is not known.
func left(p trendPoint, lag, rows float64) *float64 {
	seconds := 0.0
	if p.lag >= smallLag {
		if lag <= 0 {
			return nil
		}
		seconds = p.lag / lag
	}
	if p.rows >= smallBacklog {
		if rows <= 0 || !p.exact {
			return nil
		}
		seconds = max(seconds, float64(p.rows)/rows)
	}
	return &seconds
}
