package fallback

import (
	"maps"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// claims are the tokens of this process that a sweep needs, by table. Sweep and timers make claims.
type claims struct {
	timeout time.Duration // after which a claim expires

	mu     sync.Mutex
	tables map[string]*tableClaims
	asked  time.Time // when tookOver was called first, zero before
}

type tableClaims struct {
	// orphans are claims whose rows were not read back because the database did not answer. No part publishes these rows: the
	// next sweep takes them over and does not wait until the claims expire.
	orphans map[string]bool
	// own has all claims, until the table was swept: other claims there are of a process that has ended.
	own   map[string]bool
	swept bool
	// since is when the last claim was made that may have no owner: before the first sweep, or when rows were not read back.
	since time.Time
	// clear reports that no row is claimed which a process that has ended may have sent. A sweep leaves rows of suspended topics and
	// of keys that wait, and a row that was not read back may be one that such a process had from the log.
	clear bool
	open  int       // claims of before tookOver was called first whose rows are not handed over yet: they may be lost
	began time.Time // when the last complete sweep began
}

func newClaims(tables []string, timeout time.Duration) *claims {
	c := &claims{timeout: timeout, tables: map[string]*tableClaims{}}
	for _, name := range tables {
		c.tables[name] = &tableClaims{orphans: map[string]bool{}, own: map[string]bool{}}
	}
	return c
}

// opened begins a claim of rows of a table. The caller closes it when the rows are handed over or lost.
func (c *claims) opened(table string) (closed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() { // else timers and sweeps that always have rows would keep tookOver false
		return func() {}
	}
	t := c.tables[table]
	t.open++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.open--
	}
}

// made records a claim; lost means that its rows were not read back.
func (c *claims) made(table, token string, lost bool) {
	if token == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[table]
	if !t.swept {
		t.own[token] = true
	}
	if lost {
		t.orphans[token], t.since, t.clear = true, time.Now(), false
	}
}

// begin starts a sweep of a table. first means that no sweep of it was complete: every claim of a process that has ended must be
// taken over.
func (c *claims) begin(table string) (first bool, orphans map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.tables[table].swept, maps.Clone(c.tables[table].orphans)
}

// done ends a complete sweep of a table, which has taken these orphans over. held means that claims of an earlier process are
// left. all means that the sweep has handed every claimed row over that it found; it began at a time.
func (c *claims) done(table string, orphans map[string]bool, held, all bool, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[table]
	t.began = began
	for token := range orphans {
		delete(t.orphans, token)
	}
	// The first sweep finds every claim, later ones those that have expired.
	if all && !held && (!t.swept || began.Sub(t.since) > c.timeout) {
		t.clear = true
	}
	if !held && !t.swept {
		t.swept, t.since, t.own = true, time.Now(), nil
	}
}

// tookOver reports whether no row is claimed that a process may have sent which had ended when this one started. The first call is made
// when the log has shown all that such a process may have sent from it: every claim of before must be over, and a sweep that began later must
// be complete.
func (c *claims) tookOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() {
		c.asked = time.Now()
	}
	for _, t := range c.tables {
		if !t.clear || t.open > 0 || t.began.Before(c.asked) {
			return false
		}
	}
	return true
}

// earlier counts the rows that an earlier process may have claimed.
func (c *claims) earlier(table string, rows []outbox.Candidate) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[table]
	if t.swept {
		return 0
	}
	for i := range rows {
		if rows[i].Status == outbox.Sending && !t.own[rows[i].ClaimToken] {
			n++
		}
	}
	return n
}
