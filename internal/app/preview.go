package app

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// countPatience bounds the counting of rows for a preview; without it the preview says that they are not known.
const countPatience = 3 * time.Second

// counter counts the rows of the mapped tables by status.
type counter func(ctx context.Context) ([]table.Counts, error)

// preview says what a move would do.
func (o *Operator) preview(ctx context.Context, info server.Info, from, to outbox.Position) admin.Preview {
	p := admin.Preview{From: from, To: to, Notes: o.notes(ctx, info, from, to), Rows: []admin.PreviewRows{}}
	if order, known := o.direction(info, from, to); known && order != 0 && !from.IsZero() {
		var note string
		from, to, _ := o.comparable(info, from, to)
		note, p.Bytes = o.distance(ctx, from, to, order)
		p.Notes = slices.Insert(p.Notes, 0, note)
	}
	if o.count == nil {
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	counts, err := o.count(ctx)
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("how many rows wait could not be counted: %v", err))
		return p
	}
	for _, c := range counts {
		rows := admin.PreviewRows{Table: c.Table, Pending: c.Rows[outbox.Pending], Sending: c.Rows[outbox.Sending], Failed: c.Rows[outbox.Failed]}
		p.Rows = append(p.Rows, rows)
		p.Notes = append(p.Notes, fmt.Sprintf("%s: the full sweep that follows looks at %s PENDING and %s SENDING rows; %s FAILED ones stay as they are",
			c.Table, atMost(rows.Pending), atMost(rows.Sending), atMost(rows.Failed)))
	}
	return p
}

// atMost writes a count, which ends at table.MaxCount.
func atMost(n int64) string {
	if n >= table.MaxCount {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// distance says how far away the new position is and in which direction; bytes is negative towards the past, and nil where
// it is not known.
func (o *Operator) distance(ctx context.Context, from, to outbox.Position, order int) (note string, bytes *int64) {
	where := "later"
	if order < 0 {
		where = "earlier"
	}
	unknown := func(why string) (string, *int64) {
		return fmt.Sprintf("the new position is %s in the log; by how much is not known: %s", where, why), nil
	}
	if from.File == "" || to.File == "" {
		return unknown("a GTID set does not tell")
	}
	files, err := o.ask.Files(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	index := func(p outbox.Position) int {
		return slices.IndexFunc(files, func(f server.File) bool { return f.Name == p.File })
	}
	i, j := index(from), index(to)
	if i < 0 || j < 0 {
		return unknown("the server does not have all the files between any more")
	}
	n := int64(to.Offset) - int64(from.Offset)
	for k := min(i, j); k < max(i, j); k++ {
		n += int64(order) * int64(files[k].Size)
	}
	note = fmt.Sprintf("the new position is %d bytes %s in the log", int64(order)*n, where)
	if i != j {
		note += fmt.Sprintf(", over the ends of %d file(s)", max(i-j, j-i))
	}
	return note, &n
}

// Files lists the files of the server's log.
func (a *asker) Files(ctx context.Context) ([]server.File, error) { return server.Files(ctx, a.db) }

// countOnce binds the tables of a configuration and counts their rows, for a command that has no daemon.
func countOnce(db *sql.DB, tables []config.Table) counter {
	return func(ctx context.Context) ([]table.Counts, error) {
		maps, err := mappings(tables)
		if err != nil {
			return nil, err
		}
		var bound []*table.Table
		for _, m := range maps {
			t, findings, err := table.Load(ctx, db, m)
			if err != nil {
				return nil, err
			}
			if t == nil {
				fault := findings[slices.IndexFunc(findings, func(f server.Finding) bool { return f.Severity == server.Fault })]
				return nil, fmt.Errorf("%s: %s; see canal-outbox doctor", fault.Subject, fault.What)
			}
			bound = append(bound, t)
		}
		return table.New(db, bound).Counts(ctx)
	}
}
