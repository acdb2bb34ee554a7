package fallback

import "github.com/canal-outbox/canal-outbox/outbox"

// strays are the stamps of claims, by table, whose rows were not read back because the database did not answer. Nobody
// publishes these rows, and nobody but us knows: the next sweep takes them over and does not wait until the claims expire.
type strays map[string]map[string]bool

func (s strays) add(table, stamp string) {
	if stamp == "" {
		return
	}
	if s[table] == nil {
		s[table] = map[string]bool{}
	}
	s[table][stamp] = true
}

// hides tells whether a row that a query for strays has shown is none: a claim of somebody who may be alive. Once it has
// expired a query without strays shows it.
func (s strays) hides(table string, c *outbox.Candidate) bool {
	return c.Status == outbox.Sending && s[table] != nil && !s[table][c.Stamp]
}
