package fallback

import (
	"maps"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// claims are the tokens of this process that a sweep needs, by table. Sweep and timers make claims.
type claims struct {
	mu sync.Mutex
	// orphans are claims whose rows were not read back because the database did not answer. No part publishes these rows: the
	// next sweep takes them over and does not wait until the claims expire.
	orphans map[string]map[string]bool
	// own has all claims, until the table was swept: other claims there are of a process that has ended.
	own   map[string]map[string]bool
	swept map[string]bool
}

func newClaims() *claims {
	return &claims{orphans: map[string]map[string]bool{}, own: map[string]map[string]bool{}, swept: map[string]bool{}}
}

func enter(set map[string]map[string]bool, table, token string) {
	if set[table] == nil {
		set[table] = map[string]bool{}
	}
	set[table][token] = true
}

// made records a claim; lost means that its rows were not read back.
func (c *claims) made(table, token string, lost bool) {
	if token == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.swept[table] {
		enter(c.own, table, token)
	}
	if lost {
		enter(c.orphans, table, token)
	}
}

// begin starts a sweep of a table. first means that no sweep of it was complete: every claim of a process that has ended must be
// taken over.
func (c *claims) begin(table string) (first bool, orphans map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.swept[table], maps.Clone(c.orphans[table])
}

// done ends a complete sweep of a table, which has taken these orphans over. held means that claims of an earlier process are
// left.
func (c *claims) done(table string, orphans map[string]bool, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for token := range orphans {
		delete(c.orphans[table], token)
	}
	if !held {
		c.swept[table] = true
		delete(c.own, table)
	}
}

// earlier counts the rows that an earlier process may have claimed.
func (c *claims) earlier(table string, rows []outbox.Candidate) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.swept[table] {
		return 0
	}
	for i := range rows {
		if rows[i].Status == outbox.Sending && !c.own[table][rows[i].ClaimToken] {
			n++
		}
	}
	return n
}
