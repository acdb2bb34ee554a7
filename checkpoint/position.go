package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Origin says how the store came to be.
type Origin struct {
	CreatedAt   time.Time `json:"created_at"`            // by our clock
	Quarantined string    `json:"quarantined,omitempty"` // the damaged store it replaces, by its name in the directory; "" for a first start
}

// position is the part of a Store that says whose log is read, up to where, and where it was before.
type position struct {
	files    *engine
	origin   Origin
	progress progress
}

// progress is what a move changes. A writer changes a copy and stores it when the disk has it.
type progress struct {
	source        server.ID
	hasSource     bool
	crossed       bool // the source changed in this run: positions of both servers may still arrive here
	checkpoint    outbox.Position
	hasCheckpoint bool
	at            time.Time     // when the checkpoint was written
	history       []historyItem // the history, oldest first
	appended      int           // history entries since the last thinning
	generation    uint64        // of the last Reset in this run
}

// Checkpoint returns the end of the last transaction below which everything is settled; false before the first one.
func (p *position) Checkpoint() (outbox.Position, bool) {
	p.files.state.Lock()
	defer p.files.state.Unlock()
	return p.progress.checkpoint, p.progress.hasCheckpoint
}

// Source returns whose log the checkpoint is a position of; false before the first SetSource or Reset.
func (p *position) Source() (server.ID, bool) {
	p.files.state.Lock()
	defer p.files.state.Unlock()
	return p.progress.source, p.progress.hasSource
}

// Origin says how the store came to be: whether a missing checkpoint is a first start or the loss of a damaged store.
func (p *position) Origin() Origin {
	p.files.state.Lock()
	defer p.files.state.Unlock()
	return p.origin
}

// SetSource records the server that the identity check accepted: the first one, or the new primary after a failover. The
// change stays in the history. The checkpoint stays as it is; where that would be wrong, use Reset.
func (p *position) SetSource(id server.ID) error {
	return p.relocate(func(b *batch, next *progress, now time.Time) error {
		old := next.source
		if next.hasSource && old == id {
			return nil
		}
		changed := next.hasSource && next.hasCheckpoint
		if err := next.putSource(b, id); err != nil || !changed {
			return err
		}
		return next.putEntry(b, now, fmt.Sprintf("source changed from %s to %s", describe(old), describe(id)))
	})
}

// Reset sets the server and the checkpoint, backwards too: by an operator's decision, after a gap or after a failover. Both
// change in one step. Otherwise a restart in between could combine a position of one server with the other server. The old and
// the new position stay in the history with the reason, which must not be empty.
//
// Of the commits that follow only those of the given generation move the checkpoint. It is of this run: a new Store is at 0.
func (p *position) Reset(id server.ID, at outbox.Position, generation uint64, reason string) error {
	if reason == "" || at.IsZero() {
		return errors.New("checkpoint: moving it needs a position and a reason")
	}
	return p.relocate(func(b *batch, next *progress, now time.Time) error {
		if next.hasCheckpoint {
			if err := next.putEntry(b, now, "before: "+reason); err != nil {
				return err
			}
		}
		next.generation = generation
		return next.putMove(b, now, id, now, at, reason)
	})
}

// History returns the positions that the checkpoint had, newest first: the newest 1000, then one a minute for a day and one
// an hour for 90 days, and every move by hand in that time.
func (p *position) History() ([]Entry, error) {
	out, err := list(p.files, kindHistory, decodeEntry)
	slices.Reverse(out)
	return out, err
}

// relocate lets change fill the batch and the next progress, and stores both; a change that writes nothing is none.
func (p *position) relocate(change func(b *batch, next *progress, now time.Time) error) error {
	var next progress
	return p.files.update(func(b *batch) error {
		next = p.progress
		return change(b, &next, time.Now())
	}, func() { p.progress = next })
}

// load takes a record of this part over at the start.
func (p *position) load(key, value []byte) (err error) {
	switch key[0] {
	case kindCheckpoint:
		p.progress.checkpoint, p.progress.at, err = decodeCheckpoint(key, value)
		p.progress.hasCheckpoint = true
	case kindHistory:
		var e Entry
		e, err = decodeEntry(key, value)
		p.progress.history = append(p.progress.history, historyItem{e.Number, e.At, e.Reason != ""})
	case kindOrigin:
		err = decodeJSON(key, value, &p.origin)
	case kindSource:
		err = decodeJSON(key, value, &p.progress.source)
		p.progress.hasSource = true
	}
	return err
}

// ahead reports whether a position lies behind more of the log than the checkpoint. Within one server's log, file and offset show that at
// no cost. After a failover, or where the log was given a new name, file numbers restart: then the GTID sets decide.
func (p *progress) ahead(to outbox.Position) bool {
	at := p.checkpoint
	further := !p.hasCheckpoint || to.Compare(at) > 0
	if to.GTIDs == at.GTIDs || to.GTIDs == "" || at.GTIDs == "" || further && !p.crossed {
		return further
	}
	order, known := outbox.CompareGTIDs(p.source.Flavor, to.GTIDs, at.GTIDs)
	return known && order > 0
}

// putAdvance is the ordinary way forward: the new checkpoint, and at most once in historyPeriod its history entry. A clock
// that was set back does not stop the history.
func (p *progress) putAdvance(b *batch, now time.Time, to outbox.Position) error {
	if err := p.putCheckpoint(b, now, to); err != nil {
		return err
	}
	if n := len(p.history); n > 0 {
		if since := now.Sub(p.history[n-1].at); since >= 0 && since < historyPeriod {
			return nil
		}
	}
	return p.putEntry(b, now, "")
}

// putMove writes a server, a position on it that was written at a time, and why.
func (p *progress) putMove(b *batch, now time.Time, id server.ID, written time.Time, at outbox.Position, reason string) error {
	if err := p.putSource(b, id); err != nil {
		return err
	}
	if err := p.putCheckpoint(b, written, at); err != nil {
		return err
	}
	return p.putEntry(b, now, reason)
}

func (p *progress) putSource(b *batch, id server.ID) error {
	p.crossed = p.crossed || p.hasSource && p.source != id
	p.source, p.hasSource = id, true
	return b.putJSON([]byte{kindSource}, id)
}

func (p *progress) putCheckpoint(b *batch, now time.Time, to outbox.Position) error {
	p.checkpoint, p.hasCheckpoint, p.at = to, true, now
	b.key = append(b.key[:0], kindCheckpoint)
	b.val = appendCheckpoint(b.val[:0], now, to)
	return b.put()
}

// putEntry appends the present position to the history, and thins it now and then.
func (p *progress) putEntry(b *batch, now time.Time, reason string) error {
	entry := Entry{Number: 1, At: now, Position: p.checkpoint, Source: p.source, Reason: reason}
	if n := len(p.history); n > 0 {
		entry.Number = p.history[n-1].number + 1
	}
	if err := p.putHistory(b, entry); err != nil {
		return err
	}
	if p.appended++; p.appended < thinEvery {
		return nil
	}
	p.appended = 0
	keep, drop := thin(p.history, now)
	p.history = keep
	for _, m := range drop {
		if err := b.Delete(numberedKey(b.key[:0], kindHistory, m.number), nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *progress) putHistory(b *batch, e Entry) error {
	p.history = append(p.history, historyItem{e.Number, e.At, e.Reason != ""})
	b.key = numberedKey(b.key[:0], kindHistory, e.Number)
	b.val = appendEntry(b.val[:0], e)
	return b.put()
}

func describe(id server.ID) string {
	if id.UUID != "" {
		return id.UUID
	}
	return fmt.Sprintf("%s server id %d", id.Flavor, id.ServerID)
}
