// Package reserved is the one way to the sink of rows that are not fresh rows of the log: what a sweep or a timer found, and SENT rows that are
// sent again. The caller reserves rows; Publish claims them, reads them and hands them over, and releases what it does not hand over.
//
// Guarantee: after Publish each row is in the sink's hands, is completed, or has no owner. A row that cannot be claimed or read is missing
// among the others, which are published. The package owns no goroutine.
package reserved

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// queryTimeout ends a statement on a silent connection.
const queryTimeout = 30 * time.Second

// Flow is the pipeline.
type Flow interface {
	// Reserve takes ownership. It returns the rows that were not owned, each with its entry, and those that must be left alone: of suspended
	// topics, and those whose key waits for an earlier row.
	Reserve([]outbox.Candidate) (free, suspended []outbox.Candidate)
	// Release returns reserved rows that were not published.
	Release([]outbox.Candidate)
	// Return does so with rows that are claimed: the claim is released in the table, unless it is not known whether a killed
	// process has sent the row.
	Return(rows []outbox.Candidate, claim string)
	// Publish sends reserved rows to the sink, and the completions of rows that cannot become a message to ack. Each has the entry
	// of its candidate. It waits while there is no room. On an error, that of ctx, only the first rows were accepted.
	Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (taken int, err error)
}

// Steps are what differs from caller to caller.
type Steps struct {
	// Claim claims the rows in their table; nil: they need no claim.
	Claim func(ctx context.Context) (token string, err error)
	// Pieces divides rows into groups that are read one after the other, so that the rows of a group fit into memory.
	Pieces func(ctx context.Context, ids []outbox.Identity) ([][]outbox.Identity, error)
	// Read reads rows as messages; rejected are the completions of rows that cannot become one. Rows that have changed are in neither.
	Read func(ctx context.Context, ids []outbox.Identity) (messages []*outbox.Message, rejected []outbox.Completion, err error)
	// Before is called with what was read, before it is handed over, and with the rows; nil: nothing is to be done. An error ends the call.
	Before func(messages []*outbox.Message, rows map[outbox.Identity]outbox.Candidate) error
	// Taken is called with each message that was handed over, and its row.
	Taken func(m *outbox.Message, c outbox.Candidate)
}

// Publish publishes rows that are reserved, piece by piece. gone is the number of rows that had changed. At a stop claimed rows are released with
// their claims. A stop does not interrupt between claim and read: a row that is claimed and never read would wait until its claim expires.
func Publish(ctx context.Context, flow Flow, rows []outbox.Candidate, s Steps) (gone int, err error) {
	open, ids := make(map[outbox.Identity]outbox.Candidate, len(rows)), make([]outbox.Identity, len(rows))
	for i, c := range rows {
		open[c.Identity], ids[i] = c, c.Identity
	}
	claim, query := "", ctx
	defer func() {
		if left := slices.Collect(maps.Values(open)); claim != "" && ctx.Err() != nil {
			flow.Return(left, claim)
		} else {
			flow.Release(left)
		}
	}()
	if err := ctx.Err(); err != nil || len(rows) == 0 {
		return 0, err
	}
	token := ""
	if s.Claim != nil {
		query = context.WithoutCancel(ctx)
		if token, err = within(query, s.Claim); err != nil {
			return 0, err
		}
	}
	pieces, err := within(query, func(ctx context.Context) ([][]outbox.Identity, error) { return s.Pieces(ctx, ids) })
	if err != nil {
		return 0, err
	}
	claim = token // of which it is known what it took
	gone = len(rows)
	for _, piece := range pieces {
		read, err := within(query, func(ctx context.Context) (p page, err error) {
			p.messages, p.rejected, err = s.Read(ctx, piece)
			return p, err
		})
		if err != nil {
			return 0, err
		}
		gone -= len(read.messages) + len(read.rejected)
		if err := handOver(ctx, flow, open, read, s); err != nil {
			return 0, err
		}
	}
	return gone, nil
}

type page struct {
	messages []*outbox.Message
	rejected []outbox.Completion
}

// handOver sends messages to the sink and rejected rows to ack, and removes the accepted ones from open.
func handOver(ctx context.Context, flow Flow, open map[outbox.Identity]outbox.Candidate, read page, s Steps) error {
	for _, m := range read.messages {
		row := open[m.Identity]
		m.Entry, m.Status, m.Untouched = row.Entry, row.Status, row.Untouched
	}
	if s.Before != nil {
		if err := s.Before(read.messages, open); err != nil {
			return err
		}
	}
	for i := range read.rejected {
		id := read.rejected[i].Identity
		read.rejected[i].Entry = open[id].Entry
		delete(open, id)
	}
	taken, err := flow.Publish(ctx, read.messages, read.rejected)
	for _, m := range read.messages[:taken] {
		s.Taken(m, open[m.Identity])
		delete(open, m.Identity)
	}
	return err
}

func within[T any](ctx context.Context, query func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return query(ctx)
}
