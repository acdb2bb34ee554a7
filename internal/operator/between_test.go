package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A log that takes too long to be read is counted as far as it was, and the preview says so; one that cannot be read is no reason
// to refuse a move.
func TestPreviewBetweenIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(ctx context.Context, _, _ outbox.Position, each func(*outbox.Txn) error) error {
			rows := make([]*outbox.Message, lookUpPage)
			for i := range rows {
				rows[i] = &outbox.Message{}
			}
			for _, txn := range []*outbox.Txn{{Messages: rows}, {Deferred: []outbox.Deferred{{Rows: 3}}}} {
				if err := each(txn); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		}
		table := newRows()
		table.states = func(ctx context.Context, rows []outbox.Identity) ([]outbox.Candidate, error) {
			return make([]outbox.Candidate, max(0, len(rows)-1)), ctx.Err()
		}
		o := &Operator{Record: func(*Change) error { return nil }, State: &memory{}, Ask: oneFile{}, Between: read, Tables: table.tables}
		p, err := o.SetCheckpoint(t.Context(), Target{Latest: true, DryRun: true})
		want := PreviewBetween{Transactions: 2, Rows: lookUpPage + 3, Pending: lookUpPage - 1, Gone: 1, Unknown: 3, AtLeast: true}
		if err != nil || p.Between == nil || *p.Between != want || !strings.Contains(strings.Join(p.Notes, "\n"), "at least 2 transactions") {
			t.Errorf("%v, between %+v, want %+v\n%s", err, p.Between, want, strings.Join(p.Notes, "\n"))
		}
		o.Between = func(context.Context, outbox.Position, outbox.Position, func(*outbox.Txn) error) error {
			return errors.New("no grant")
		}
		p, err = o.SetCheckpoint(t.Context(), Target{Latest: true, DryRun: true})
		if err != nil || p.Between != nil || !strings.Contains(strings.Join(p.Notes, "\n"), "could not be counted: no grant") {
			t.Errorf("%v, between %+v\n%s", err, p.Between, strings.Join(p.Notes, "\n"))
		}
	})
}
