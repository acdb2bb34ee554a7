package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// ExplainSweep asks the server how it looks for due rows, as it would now, with its statistics of now.
func ExplainSweep(ctx context.Context, db *sql.DB, of *table.Table) (server.Finding, error) {
	t := withLocks(of)
	f := server.Finding{Severity: server.Warning, Subject: t.Name()}
	indexes, err := t.Indexes(ctx, db)
	if err != nil {
		return f, err
	}
	wanted := t.SweepIndex()
	for _, query := range t.sweepQueries() {
		plan, err := explain(ctx, db, query())
		if t.ForgetIndex(err) { // the index is there, and the server does not let it be used
			plan, err = explain(ctx, db, query())
		}
		if err != nil {
			return f, err
		}
		what, ok := t.judge(plan, indexes)
		if what != "" {
			f.What = what
		}
		if ok {
			continue
		}
		if f.Fix = "ALTER TABLE " + t.Quoted() + " " + t.AddSweepIndex(); wanted != "" && t.SweepIndex() == "" {
			f.Fix = fmt.Sprintf("ALTER TABLE %s ALTER INDEX %s VISIBLE (MariaDB: NOT IGNORED)", t.Quoted(), table.Quote(wanted))
		}
		f.SQL = f.Fix
		if strings.Contains(f.SQL, "(MariaDB") {
			f.SQL = ""
		}
		return f, nil
	}
	f.Severity = server.OK
	return f, nil
}

// sweepQueries make the queries of each range's first page, with and without a threshold.
func (t *mapped) sweepQueries() (list []func() *table.Statement) {
	at := table.Cursor{Attempts: table.AttemptCount{Known: true, Value: "0"}}
	for _, threshold := range []time.Duration{time.Minute, 0} {
		q := pageQuery{DueQuery: table.DueQuery{Threshold: threshold, Horizon: time.Minute, ExpiredClaims: threshold, Limit: table.MaxRows}}
		for _, in := range t.ranges(q) {
			list = append(list, func() *table.Statement { return t.due(in, at, q) })
		}
	}
	if t.Strategy() == table.ByAttempts {
		list = append(list, func() *table.Statement {
			return t.AttemptsOf(table.CodeOf(t.Mapping().Codes[outbox.Pending]), at.Attempts)
		})
	}
	return list
}

// judge says what a plan of one of the sweep's queries means, and whether it is good.
func (t *mapped) judge(plan accessPath, indexes []table.Index) (what string, ok bool) {
	code := strings.ToLower(t.Type(table.StatusCode).Name)
	i := slices.IndexFunc(indexes, func(i table.Index) bool { return i.Name == plan.key })
	switch {
	case plan.access == "": // no row can match: the server looks for none
		return "", true
	case plan.access == "all" || plan.access == "index":
		return fmt.Sprintf("EXPLAIN: the sweep reads the whole table to find its rows (type %s, key %s)", plan.access, orNone(plan.key)), false
	case i < 0 || indexes[i].Columns[0] != code:
		return fmt.Sprintf("EXPLAIN: the sweep reads by the index %s, which does not begin with the status: it goes through rows that were sent long ago", plan.key), false
	case strings.Contains(plan.extra, "filesort") || strings.Contains(plan.extra, "temporary"):
		return fmt.Sprintf("EXPLAIN: the sweep reads by the index %s and sorts all rows that wait for each page (%s)", plan.key, plan.extra), false
	}
	return "EXPLAIN: the sweep reads by the index " + plan.key, true
}

func orNone(key string) string {
	if key == "" {
		return "none"
	}
	return key
}

// accessPath is what EXPLAIN says of a query of one table.
type accessPath struct {
	access string // the type, in lower case
	key    string
	extra  string // in lower case
}

func explain(ctx context.Context, db *sql.DB, s *table.Statement) (accessPath, error) {
	plan, err := server.Show(ctx, db, "EXPLAIN FORMAT=TRADITIONAL "+s.String(), s.Args...)
	if err != nil || len(plan) == 0 {
		return accessPath{}, err
	}
	last := plan[len(plan)-1]
	return accessPath{strings.ToLower(last["type"]), last["key"], strings.ToLower(last["extra"])}, nil
}
