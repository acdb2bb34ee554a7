package canal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A26: what a statement does to the columns of a table is what the server does, when several clauses of one ALTER are about the same
// columns and places. The server refuses many of these statements.
func TestA26_ClausesActAsOnTheServer(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.SharedDatabase(t, flavor)
		l := newLab(t, db)
		s := &schemaVersions{db: l.sql}
		var err error
		s.info, _, err = lookAt(l.sql)(context.Background())
		testkit.Must(t, err)
		statement := definition.Statement{Schema: l.schema, Charset: definition.UTF8, Server: s.dialect()}
		taken, different := 0, 0
		for seed := range 5 * histories() {
			rng := rand.New(rand.NewPCG(uint64(seed), 2))
			if seed%10 == 0 {
				l.exec("DROP TABLE IF EXISTS o")
				l.exec("CREATE TABLE o (a INT, b INT, c INT, d INT) DEFAULT CHARSET utf8mb4")
			}
			before, err := s.read(context.Background(), l.schema+".o")
			testkit.Must(t, err)
			query := "ALTER TABLE o " + collidingClauses(rng, before.Table)
			if _, err := l.sql.Exec(query); err != nil {
				continue
			}
			taken++
			after, err := s.read(context.Background(), l.schema+".o")
			testkit.Must(t, err)
			statement.SQL = []byte(query)
			got, err := applied(statement, l.schema+".o", before.Table)
			if err != nil || !sameDefinition(got, after.Table) {
				t.Errorf("%s\nfrom %v\n got %v, %v\nwant %v", query, columnNames(before.Table), columnNames(got), err, columnNames(after.Table))
				if different++; different > 10 {
					t.FailNow()
				}
			}
		}
		t.Logf("%d statements taken", taken)
	})
}

func applied(s definition.Statement, name string, before *definition.Table) (after *definition.Table, err error) {
	changes, err := definition.Read(s)
	state := definition.State{Table: before, Known: true}
	for _, c := range changes {
		if failed := c.Apply(func(string) definition.State { return state }, func(_ string, now definition.State) { state = now }); failed != nil {
			err = failed
		}
	}
	return state.Table, err
}

func columnNames(t *definition.Table) (out []string) {
	if t != nil {
		for _, c := range t.Columns {
			out = append(out, c.Name+" "+c.Type)
		}
	}
	return out
}

// collidingClauses are clauses about few columns, most of which exist.
func collidingClauses(rng *rand.Rand, t *definition.Table) string {
	have := func() string { return t.Columns[rng.IntN(len(t.Columns))].Name }
	fresh := func() string { return string("efghi"[rng.IntN(5)]) }
	any := func() string {
		if rng.IntN(3) == 0 {
			return fresh()
		}
		return have()
	}
	exists := func(words string) string {
		if rng.IntN(12) == 0 {
			return words // MariaDB only
		}
		return ""
	}
	var out []string
	for range 1 + rng.IntN(3) {
		typ := []string{"INT", "BIGINT", "CHAR(3)", "TEXT"}[rng.IntN(4)]
		place := []string{"", "", " FIRST", " AFTER " + any(), " AFTER " + have()}[rng.IntN(5)]
		switch rng.IntN(6) {
		case 0, 1:
			out = append(out, "ADD "+exists("COLUMN IF NOT EXISTS ")+fresh()+" "+typ+place)
		case 2:
			out = append(out, "DROP "+exists("COLUMN IF EXISTS ")+have())
		case 3:
			out = append(out, "MODIFY "+exists("IF EXISTS ")+any()+" "+typ+place)
		case 4:
			out = append(out, fmt.Sprintf("CHANGE %s%s %s %s%s", exists("IF EXISTS "), have(), any(), typ, place))
		case 5:
			out = append(out, "RENAME COLUMN "+exists("IF EXISTS ")+have()+" TO "+any())
		}
	}
	return strings.Join(out, ", ")
}
