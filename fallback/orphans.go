package fallback

import "github.com/canal-outbox/canal-outbox/outbox"

// orphans are the tokens of claims, by table, whose rows were not read back because the database did not answer. Nobody
// publishes these rows, and nobody but us knows: the next sweep takes them over and does not wait until the claims expire.
type orphans map[string]map[string]bool

func (s orphans) add(table, token string) {
	if token == "" {
		return
	}
	if s[table] == nil {
		s[table] = map[string]bool{}
	}
	s[table][token] = true
}

// hides tells whether a row that a query for orphans has shown is none: a claim of somebody who may be alive. Once it has
// expired a query without orphans shows it.
func (s orphans) hides(table string, c *outbox.Candidate) bool {
	return c.Status == outbox.Sending && s[table] != nil && !s[table][c.ClaimToken]
}
