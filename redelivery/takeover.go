package redelivery

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// The counts of redeliveries are in the state directory, and a relay that takes over from another one does not have them. It
// assumes the maximum that the other can have sent: redeliveries of a row are at least rule.After apart, so a row that has been
// SENT for k times that was sent again at most k times. So a take-over never adds a redelivery. A row may be sent fewer times
// than configured if no relay was active or the other did not redeliver; it then counts as given up, which status shows.

// takenOver names the record of a take-over whose rows are not all counted yet, so that a crash in between does not lose it.
func takenOver(name string) outbox.Identity {
	return outbox.Identity{Table: name, MessageID: "taken over"}
}

// noteTakeOver records that this relay has just taken over.
func (r *Redelivery) noteTakeOver() error {
	if r.cfg.TakenOver == nil || !r.cfg.TakenOver() {
		return nil
	}
	var put []table.Waiting
	for name := range r.cfg.Sent {
		r.taken[name] = time.Now()
		put = append(put, table.Waiting{Identity: takenOver(name), Wait: table.Wait{Due: time.Now()}})
	}
	if len(put) == 0 {
		return nil
	}
	if err := r.waits.KeepRedeliveries(put, nil); err != nil {
		return fmt.Errorf("record the take-over: %w", err)
	}
	return nil
}

// countTakenOver reads the next page of the rows that the previous relay may have sent again, once after a take-over: those that
// have been SENT for k times the wait, from the maximum of k down to 1, count as sent k times. On an error the next pass starts
// from the beginning; a row that is counted already keeps the higher count.
func (r *Redelivery) countTakenOver(ctx context.Context, p *sentPass) error {
	began, k := time.Now(), p.assumed
	age := time.Duration(k)*p.rule.After + time.Since(r.taken[p.name])
	page, next, err := r.page(ctx, p.name, p.at, table.FinalQuery{Status: outbox.Sent, Age: age, Limit: pageRows})
	if err != nil {
		return err
	}
	var put []table.Waiting
	for _, c := range page {
		w, counted := r.counts[c.Identity]
		if counted && w.Attempts >= k || !counted && len(r.counts)+len(put) >= r.most { // without room no uncounted row is sent
			continue
		}
		put = append(put, table.Waiting{Identity: c.Identity, Wait: table.Wait{Due: time.Now().Add(p.rule.After), Attempts: k}})
	}
	if err := r.keep(put); err != nil {
		return err
	}
	outbox.Wait(ctx, share*time.Since(began), nil)
	if p.at = next; !next.Done() {
		return nil
	}
	p.assumed, p.at = k-1, table.Cursor{}
	if p.assumed > 0 {
		return nil
	}
	if err := r.waits.KeepRedeliveries(nil, []outbox.Identity{takenOver(p.name)}); err != nil {
		return fmt.Errorf("forget the take-over: %w", err)
	}
	delete(r.taken, p.name)
	return nil
}
