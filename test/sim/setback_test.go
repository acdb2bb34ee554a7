package sim

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is an operator's retry: the relay is asked first, so that neither what is under way nor what a start after a kill finds shows the row as
// SENT again. What a second writer sets back has no such protection.

// setBack sets a final row back as internal/app does.
func (w *world) setBack(o operation) {
	w.mu.Lock()
	i, r := w.working(), w.chooseFinal(o.row)
	ready := i != nil && !i.dead && i.relay != nil && i.relay.Ready() && r != nil && i.setsBack == nil
	if ready {
		i.setsBack = r
	}
	w.mu.Unlock()
	if !ready {
		return
	}
	ctx, cancel := context.WithTimeout(i.ctx, 10*time.Second)
	defer cancel()
	ids, err := i.relay.SetBack(ctx, []outbox.Identity{r.Identity})
	if err == nil && i.sink.exact != nil {
		err = i.sink.exact.Mark(ctx)
	} else if err == nil {
		err = i.alive.SetBack(ctx, ids)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i.setsBack, w.setBackAt = nil, w.at()
	if _, down := i.databaseDown(); err != nil || len(ids) == 0 || i.latest().dead || down || r.gone || r.status != outbox.Sent && r.status != outbox.Failed {
		return
	}
	w.note(0, "set back", name(r.Identity), r.status.String(), r.records)
	r.resend()
	if w.plan.team == nil { // else another process may still have its SENT on the way
		r.owed = r.records + 1
	}
	w.append(&entry{reason: "update"})
}
