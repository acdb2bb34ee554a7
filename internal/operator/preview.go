package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// countPatience bounds the counting of rows for a preview; without it the preview says that they are not known.
const countPatience = 3 * time.Second

// preview says what a move would do.
func (o *Operator) preview(ctx context.Context, info server.Info, from, to outbox.Position) Preview {
	p := Preview{From: from, To: to, Notes: o.notes(ctx, info, from, to), Rows: []PreviewRows{}}
	if order, known := o.direction(info, from, to); known && order != 0 && !from.IsZero() {
		var note string
		from, to, _ := o.comparable(info, from, to)
		note, p.Bytes = o.distance(ctx, from, to, order)
		p.Notes = slices.Insert(p.Notes, 0, note)
	}
	o.between(ctx, info, &p)
	for _, name := range o.LogOnly {
		p.Notes = append(p.Notes, name+": has no status and is not swept: rows between the positions are lost when the new one is later, and are all published again when it is earlier")
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	var counts []query.Counts
	rows, err := o.Tables(ctx)
	if err == nil {
		counts, err = rows.Counts(ctx)
	}
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("how many rows wait could not be counted: %v", err))
		return p
	}
	for _, c := range counts {
		rows := PreviewRows{Table: c.Table, Pending: c.Rows[outbox.Pending] + c.Delayed, Sending: c.Rows[outbox.Sending], Failed: c.Rows[outbox.Failed]}
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
	files, err := o.Ask.Files(ctx)
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

// direction compares the checkpoint with a target.
func (o *Operator) direction(now server.Info, from, to outbox.Position) (order int, known bool) {
	from, to, known = o.comparable(now, from, to)
	if !known {
		return 0, false
	}
	if from.File != "" && to.File != "" {
		return to.Compare(from), true
	}
	return outbox.CompareGTIDs(now.Flavor, to.GTIDs, from.GTIDs)
}

// comparable leaves of two positions what can be compared. Files and offsets of two servers do not compare, whatever their
// names say, and GTIDs only where the one has the other's history: MariaDB numbers the domain 0 everywhere.
func (o *Operator) comparable(now server.Info, from, to outbox.Position) (outbox.Position, outbox.Position, bool) {
	if recorded, ok := o.State.Source(); ok && !recorded.Same(now.ID) {
		if relation, _ := server.CheckIdentity(recorded, from, now, outbox.Position{}); relation == server.Foreign {
			return from, to, false
		}
		from.File, to.File = "", ""
	}
	return from, to, true
}

// notes say what follows from a move.
func (o *Operator) notes(ctx context.Context, info server.Info, from, to outbox.Position) []string {
	notes := []string{}
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if recorded, ok := o.State.Source(); ok && !recorded.Same(info.ID) {
		add("the checkpoint was of %s; from now on it is of %s", recorded, info.ID)
	}
	switch order, known := o.direction(info, from, to); {
	case from.IsZero():
		add("there is no checkpoint yet: reading starts at the new position")
	case !known:
		add("the two positions do not compare: a full sweep publishes every row that is still PENDING, whatever the log shows from the new one on")
		add("this is recorded as a gap")
	case order > 0:
		add("what lies between is not read: a full sweep publishes the rows in it that are still PENDING, without the order of the log")
		add("the skipped part is recorded as a gap")
	case order < 0:
		add("what lies between is read again: each row is looked up in its table, PENDING ones are published, all others are passed over")
	default:
		add("the position does not change")
	}
	if to.File == "" {
		return notes
	}
	if has, err := o.Ask.HasFile(ctx, to); err != nil {
		add("not checked whether the server still has the position: %v", err)
	} else if !has {
		add("the server does not have this position any more: the reader will record a gap, and a full sweep publishes its rows")
	}
	return notes
}
