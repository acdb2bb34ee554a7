package table

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// ExplainSweep asks the server how it looks for due rows, as it would now, with its statistics of now.
func (t *Table) ExplainSweep(ctx context.Context, db *sql.DB) (server.Finding, error) {
	f := server.Finding{Severity: server.Warning, Subject: t.name}
	indexes, err := describeIndexes(ctx, db, description{schema: t.schema, name: t.name[len(t.schema)+1:]})
	if err != nil {
		return f, err
	}
	wanted := t.sweepIndex.Load()
	for _, query := range t.sweepQueries() {
		plan, err := explain(ctx, db, query())
		if t.forgetIndex(err) { // the index is there, and the server does not let it be used
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
		if f.Fix = "ALTER TABLE " + t.quoted + " " + t.addSweepIndex(); wanted != nil && t.sweepIndex.Load() == nil {
			f.Fix = fmt.Sprintf("ALTER TABLE %s ALTER INDEX %s VISIBLE (MariaDB: NOT IGNORED)", t.quoted, quote(*wanted))
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

// sweepQueries make the queries of each stretch's first page, with and without a threshold.
func (t *Table) sweepQueries() (list []func() *statement) {
	at := Cursor{attempts: attemptCount{known: true, value: "0"}}
	for _, threshold := range []time.Duration{time.Minute, 0} {
		q := DueQuery{Threshold: threshold, Horizon: time.Minute, ExpiredClaims: threshold, Limit: maxRows}
		for _, in := range t.stretches(q) {
			list = append(list, func() *statement { return t.due(in, at, q) })
		}
	}
	if t.strategy == byAttempts {
		list = append(list, func() *statement { return t.attemptsBehind(outbox.Pending, at.attempts) })
	}
	return list
}

// judge says what a plan of one of the sweep's queries means, and whether it is good.
func (t *Table) judge(plan accessPath, indexes []index) (what string, ok bool) {
	code := strings.ToLower(t.columns[StatusCode].Name)
	i := slices.IndexFunc(indexes, func(i index) bool { return i.name == plan.key })
	switch {
	case plan.access == "": // no row can match: the server looks for none
		return "", true
	case plan.access == "all" || plan.access == "index":
		return fmt.Sprintf("EXPLAIN: the sweep reads the whole table to find its rows (type %s, key %s)", plan.access, orNone(plan.key)), false
	case i < 0 || indexes[i].columns[0] != code:
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

func explain(ctx context.Context, db *sql.DB, s *statement) (accessPath, error) {
	plan, err := server.Show(ctx, db, "EXPLAIN FORMAT=TRADITIONAL "+s.text.String(), s.args...)
	if err != nil || len(plan) == 0 {
		return accessPath{}, err
	}
	last := plan[len(plan)-1]
	return accessPath{strings.ToLower(last["type"]), last["key"], strings.ToLower(last["extra"])}, nil
}
