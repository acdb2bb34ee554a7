package sim

import (
	"context"
	"slices"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is the table without a status: its rows are in the log alone, and the journal alone says that they were sent.

const logTable = "shop.outboxevent"

// logAccount is what the checks know of its rows.
type logAccount struct {
	passed     dirs  // whose journals it left: a checkpoint behind it is durable
	kept       bool  // the failed-message log has it
	excused    bool  // it lies in a part of the log that was passed over
	again      bool  // the position was reset since it was sent: it may come again
	anchoredOn *disk // the directory whose position that was, of the last time
}

// show puts rows into the log and into no table. Callers hold mu.
func (w *world) show(rows []*row, entry int) {
	for _, r := range rows {
		r.entry, r.committed, r.visible = entry, w.log[entry].at, w.log[entry].at
		w.byID[r.Identity] = r
		w.lives = append(w.lives, r)
		w.note(0, "commit", name(r.Identity), r.key+" "+r.topic+", deleted at once", entry)
	}
}

// pieces hands a large transaction over but for its last rows, which it returns. What is large the model decides.
func (r *reader) pieces(ctx context.Context, e *entry) (rest []*row, err error) {
	w := r.i.w
	rest = e.rows
	w.mu.Lock()
	inPieces := len(rest) > 1 && rest[0].logOnly && r.pos.File != "" && newDice(w.seed, "pieces", uint64(rest[0].number)).chance(0.5)
	w.mu.Unlock()
	for inPieces && len(rest) > 1 {
		if r.i.step("before piece") {
			return nil, errDead
		}
		w.mu.Lock()
		w.note(r.i.life, "piece", name(rest[0].Identity), r.pos.String(), 1)
		txn := &outbox.Txn{End: r.pos, CommittedAt: e.at, Messages: []*outbox.Message{rest[0].logged()}, More: true}
		cut := w.at() < w.plan.healed && w.dice("piece", uint64(r.i.life)).chance(w.plan.cuts)
		w.mu.Unlock()
		if err := r.handler.Offer(ctx, txn); err != nil {
			return nil, err
		}
		if cut {
			return nil, errCut
		}
		rest = rest[1:]
	}
	return rest, nil
}

// keep is the failed-message log. What is there was refused for good, or too often.
func (c rows) keep(ctx context.Context, batch []outbox.Completion) error {
	w := c.i.w
	return c.write(ctx, "failed-message log", "", func() {
		for _, s := range batch {
			r := w.byID[s.Identity]
			switch {
			case r == nil || !r.logOnly || s.Action != outbox.ActionFail:
				w.violation("failed log", "a completion that it cannot take: %+v", s)
				continue
			case s.Message == nil || s.Message.Identity != s.Identity:
				w.violation("failed log", "%s comes without its message", name(r.Identity))
			case !r.poison && r.burnt() <= w.budget(r):
				w.violation("budget", "%s is given up after %d refusals and %d silences of %d", name(r.Identity), r.refused, r.unknown, w.budget(r))
			}
			r.kept, r.of(c.i.life).kept = true, true
			w.note(c.i.life, "kept", name(r.Identity), s.Reason, 0)
		}
	})
}

// checkAgain is for a message that is sent: copies are of rows that the journal did not have. Callers hold mu.
func (w *world) checkAgain(i *incarnation, r *row) {
	w.checkInherited(i, r)
	switch {
	case r.journalled.has(i.disk):
		w.violation("P3", "%s is sent again though the journal has it", name(r.Identity))
	case r.again:
	case r.of(i.life).acked:
		w.violation("P3", "%s is sent again by the process that has its acknowledgement", name(r.Identity))
	case r.passed.has(i.disk):
		w.violation("P3", "%s is sent again though the checkpoint has passed it", name(r.Identity))
	}
}

// settledLog reports whether the checkpoint may pass the row, and if not, why.
func (r *row) settledLog(d *disk) string {
	if r.journalled.has(d) || r.passed.has(d) || r.kept || r.excused {
		return ""
	}
	return "neither in the journal nor in the failed-message log"
}

// unpublished returns why the row is not finished; "" when it is.
func (r *row) unpublished() string {
	if r.records > 0 || r.kept || r.excused {
		return ""
	}
	return "is in the log alone"
}

// checkKept looks at the row when all is over. Callers hold mu.
func (w *world) checkKept(r *row) {
	if why := r.unpublished(); why != "" {
		w.violation("P1", "%s %s", name(r.Identity), why)
	}
	if r.poison && r.records > 0 {
		w.violation("P2", "the broker has %s, which it never takes", name(r.Identity))
	}
}

// checkPassed is for a row that is about to leave the journal. Callers hold mu.
func (s *state) checkPassed(r *row) {
	w := s.i.w
	if s.i.source == w.id && r.entry >= w.indexOf(s.i.disk.checkpoint) && !r.again {
		w.violation("journal", "%s leaves the journal before the checkpoint has passed it", name(r.Identity))
	}
}

// isAhead reports whether a row is behind the checkpoint that a commit has, or leaves, so that the log is read from before it. Callers hold mu.
func (s *state) isAhead(r *row, at *outbox.Position) bool {
	w, checkpoint := s.i.w, s.i.disk.checkpoint
	if at != nil {
		checkpoint = *at
	}
	return r.again && s.i.source == w.id && r.entry >= w.indexOf(checkpoint)
}

// anchored is called when a position is reset or lost: sent rows may come again.
func (r *row) anchored(d *disk) {
	if r.logOnly {
		r.again, r.anchoredOn = true, d
		r.passed.set(d, false)
	}
}

// movedTo is called when a position is set: rows before it are lost unless they are stored elsewhere. A take-over does not
// excuse a lost row. Callers hold mu.
func (w *world) movedTo(d *disk, at outbox.Position, why string) {
	d.moved, d.aside = why != relay.ReasonTakenOver, nil
	if why == firstStart && w.known && w.superseded(d) {
		d.aside = &at
		return
	}
	w.passOver(d, at, why)
}

// superseded reports whether another process has taken the lease since the one of a directory did. The position that such a process sets is its own
// alone: it reads nothing before the lease has that position, which then counts (reader.Run). Callers hold mu.
func (w *world) superseded(d *disk) bool {
	return !slices.ContainsFunc(w.held, func(r *leaseRow) bool { return r.by == d.present.team })
}

// passOver is movedTo for a position that counts. Callers hold mu.
func (w *world) passOver(d *disk, at outbox.Position, why string) {
	n := w.indexOf(at)
	inherits := why == relay.ReasonTakenOver || w.known && why == firstStart
	for _, r := range w.lives {
		if r.logOnly {
			switch r.anchored(d); {
			case r.entry >= n || r.unpublished() == "":
			case inherits:
				w.violation("P1", "%s is passed over (%s) at %v", name(r.Identity), why, at)
			default:
				r.excused = true
			}
		}
	}
}

// unanswered reports that the broker has a row and the last answer to the process that runs is not that: its reply was lost, or, after the position
// was moved back, a copy was refused, or waits for its suspended topic. The process sends the row once more, later, and the checkpoint waits for it.
// Callers hold mu.
func (w *world) unanswered(r *row) string {
	i := w.working()
	if i == nil || i.dead || r.of(i.life).kept { // one that an earlier process has put there is sent again
		return ""
	}
	f, again := r.of(i.life), false
	switch f.answer {
	case outbox.ClassUnknown, outbox.ClassOutage, outbox.ClassService, outbox.ClassRefused, outbox.ClassTopic:
		again = f.answered && !f.acked
	}
	if again || f.handed || r.again && f.offered && !f.forgiven && !r.journalled.has(i.disk) && !r.passed.has(i.disk) {
		return "is to be sent again"
	}
	return ""
}
