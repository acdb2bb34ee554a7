package alert

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Limits are what the tables should stay under; 0 is no limit.
type Limits struct {
	Pending int64         // rows of a table that are due
	Oldest  time.Duration // age of the oldest of them
}

// Crossing is a table that has gone over a limit, or is back under it.
type Crossing struct {
	Table string  `json:"table"`
	What  string  `json:"what"` // pending (rows), oldest_pending (seconds) or not_consumed (rows)
	Value float64 `json:"value"`
	Limit float64 `json:"limit"`
	Over  bool    `json:"over"` // false: it has recovered
}

// What limits are on.
const (
	overPending     = "pending"
	overOldest      = "oldest_pending"
	overNotConsumed = "not_consumed"
)

// recovered is the part of a limit that a value must come down to: one that moves about its limit is reported once.
const recovered = 0.8

// watchEvery is how often the last counts of the tables are looked at.
const watchEvery = 5 * time.Second

type limit struct{ table, what string }

// watch looks at the tables until ctx ends. A table that cannot be listed is logged and delays no other.
func (a *Alerter) watch(ctx context.Context) {
	for outbox.Wait(ctx, watchEvery, nil) {
		tables := a.cfg.Tables()
		a.look(tables)
		a.lookAtFailed(ctx, tables)
		a.keep()
	}
}

// look finds out what has gone over a limit, or come back.
func (a *Alerter) look(tables []Table) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rang := false
	see := func(table, what string, value, most float64, on bool) {
		key := limit{table, what}
		before, was := a.over[key]
		c := Crossing{Table: table, What: what, Value: value, Limit: most, Over: true}
		switch {
		case !on:
		case value > most:
			a.over[key] = c
			if !was {
				a.crossed[key], rang = c, true
			}
		case was && value <= recovered*before.Limit:
			delete(a.over, key)
			c.Over = false
			if pending, waits := a.crossed[key]; waits && pending.Over {
				delete(a.crossed, key) // the crossing was not announced
				return
			}
			a.crossed[key], rang = c, true
		case was:
			a.over[key] = c
		}
	}
	for _, t := range tables {
		see(t.Table, overPending, float64(t.Pending), float64(a.cfg.Limits.Pending), a.cfg.Limits.Pending > 0)
		see(t.Table, overOldest, t.OldestPending, a.cfg.Limits.Oldest.Seconds(), a.cfg.Limits.Oldest > 0)
		see(t.Table, overNotConsumed, float64(t.NotConsumed), 0, true)
	}
	if rang {
		a.ring()
	}
}

// Over is what is over a limit now, in the order of the tables.
func (a *Alerter) Over() []Crossing {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sorted(a.over)
}

func sorted(m map[limit]Crossing) []Crossing {
	return slices.SortedFunc(maps.Values(m), func(x, y Crossing) int {
		return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.What, y.What))
	})
}

// String is the crossing in words.
func (c Crossing) String() string {
	value, most := fmt.Sprintf("%.0f", c.Value), fmt.Sprintf("%.0f", c.Limit)
	if c.What == overOldest {
		value, most = seconds(c.Value), seconds(c.Limit)
	}
	switch {
	case c.What == overNotConsumed && c.Over:
		return fmt.Sprintf("%s rows of %s went out again so often as they may, and no consumer has finished them", value, c.Table)
	case c.What == overNotConsumed:
		return "no row of " + c.Table + " waits in vain for a consumer any more"
	case c.What == overPending && c.Over:
		return fmt.Sprintf("%s rows of %s wait to be sent, more than %s", value, c.Table, most)
	case c.What == overPending:
		return fmt.Sprintf("%s rows of %s wait to be sent, few enough again", value, c.Table)
	case c.Over:
		return fmt.Sprintf("the oldest row of %s waits to be sent for %s, longer than %s", c.Table, value, most)
	}
	return fmt.Sprintf("the oldest row of %s waits to be sent for %s, no longer than it may", c.Table, value)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// crossings is the message of what has crossed a limit; nil when there is nothing.
func (a *Alerter) crossings() (m *message, concluded func(ok bool)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.crossed) == 0 {
		return nil, nil
	}
	m = a.message("limit")
	m.Limits = sorted(a.crossed)
	m.Limits = m.Limits[:min(len(m.Limits), maxRows)]
	m.Text = fmt.Sprintf("canal-outbox, %s: %s", m.Source, m.Limits[0])
	if more := len(a.crossed) - 1; more > 0 {
		m.Text += fmt.Sprintf(" (and %d more)", more)
	}
	told := m.Limits
	return m, func(ok bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, c := range told {
			if key := (limit{c.Table, c.What}); ok && a.crossed[key] == c { // else it has crossed once more meanwhile
				delete(a.crossed, key)
			}
		}
	}
}
