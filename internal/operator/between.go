package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// betweenPatience bounds the reading of the log for a preview; what was counted by then is a lower bound.
const betweenPatience = 10 * time.Second

// lookUpPage is how many rows are looked up at a time.
const lookUpPage = 500

// between counts what the log has between the two positions of a preview, and what becomes of it.
func (o *Operator) between(ctx context.Context, info server.Info, p *Preview) {
	from, to, known := o.comparable(info, p.From, p.To)
	if o.Between == nil || !known || from.File == "" || to.File == "" || from.Compare(to) == 0 {
		return
	}
	back := to.Compare(from) < 0
	if back {
		from, to = to, from
	}
	ctx, cancel := context.WithTimeout(ctx, betweenPatience)
	defer cancel()
	counted := &PreviewBetween{}
	err := o.count(ctx, from, to, counted)
	if err != nil && ctx.Err() != nil {
		counted.AtLeast, err = true, nil
	}
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("what lies between the two positions could not be counted: %v", err))
		return
	}
	p.Between, p.Notes = counted, append(p.Notes, betweenNotes(counted, back)...)
}

// count reads the log from a position on, or from where the server still has it.
func (o *Operator) count(ctx context.Context, from, to outbox.Position, counted *PreviewBetween) error {
	files, err := o.Ask.Files(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, func(f server.File) bool { return f.Name == from.File }) {
		if from, err = o.Ask.Earliest(ctx); err != nil {
			return err
		}
		counted.Purged = true
	}
	return o.eachPage(ctx, from, to, func(txn *outbox.Txn) (ids []outbox.Identity) {
		counted.Transactions++
		for _, d := range txn.Deferred {
			counted.Unknown += int64(d.Rows)
			counted.Rows += int64(d.Rows)
		}
		for _, m := range txn.Messages {
			if m.LogOnly {
				counted.Rows++
				counted.WithoutStatus++
				continue
			}
			ids = append(ids, m.Identity)
		}
		return ids
	}, func(page int, rows []outbox.Candidate) error {
		for _, row := range rows {
			if row.Status == outbox.Pending {
				counted.Pending++
			} else {
				counted.Settled++
			}
		}
		counted.Gone += int64(page - len(rows))
		counted.Rows += int64(page)
		return nil
	})
}

// eachPage reads the log between two positions and looks up, a page at a time, the rows that pick takes of each transaction. found
// gets the size of a page and what the tables show of it.
func (o *Operator) eachPage(
	ctx context.Context, from, to outbox.Position, pick func(*outbox.Txn) []outbox.Identity, found func(page int, rows []outbox.Candidate) error,
) error {
	var page []outbox.Identity
	lookUp := func() error {
		tables, err := o.Tables(ctx)
		if err != nil {
			return err
		}
		rows, err := tables.States(ctx, page)
		if err == nil {
			err = found(len(page), rows)
		}
		page = page[:0]
		return err
	}
	err := o.Between(ctx, from, to, func(txn *outbox.Txn) error {
		if page = append(page, pick(txn)...); len(page) < lookUpPage {
			return nil
		}
		return lookUp()
	})
	if err == nil {
		err = lookUp()
	}
	return err
}

// betweenNotes say it in sentences.
func betweenNotes(c *PreviewBetween, back bool) (notes []string) {
	atLeast := ""
	if c.AtLeast {
		atLeast = "at least "
	}
	then := "which the sweep publishes"
	if back {
		then = "which would be sent"
	}
	notes = append(notes, fmt.Sprintf("between the two positions: %s%d transactions with %d outbox rows: %d are PENDING, %s; %d settle at once; %d are gone from their table",
		atLeast, c.Transactions, c.Rows, c.Pending, then, c.Settled, c.Gone))
	if c.WithoutStatus > 0 {
		fate := "they are not published"
		if back {
			fate = "all of them are published again, but those that the journal still has"
		}
		notes = append(notes, fmt.Sprintf("%d of these rows are of tables without a status: %s", c.WithoutStatus, fate))
	}
	if c.Unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d of these rows the log does not show one by one: the sweep looks at them in the table", c.Unknown))
	}
	if c.AtLeast {
		notes = append(notes, fmt.Sprintf("reading ended after %v: there is more", betweenPatience))
	}
	if c.Purged {
		notes = append(notes, "the server has purged the begin of that part: only what is left was counted")
	}
	return notes
}
