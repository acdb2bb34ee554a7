package sim

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// disk is a state directory as the next process will find it.
type disk struct {
	number  int
	present *incarnation // the one that lives, or the last one
	files   *vfs.MemFS
	sign    signState            // of the last process
	lost    bool                 // an earlier state was lost
	torn    bool                 // the last crash left a part of what was not synced
	passAt  map[string]time.Time // by table, of the last pass over FAILED rows that do not say when they failed

	// What must be there: what a write that returned has put there.
	anchored   bool
	checkpoint outbox.Position
	source     server.ID        // of the position that was set last
	aside      *outbox.Position // an anchor that does not count, see superseded
	doubt      *doubt           // a commit that was under way at the crash
	moving     *outbox.Position // an anchor that was
	why        string           // its reason
	moved      bool             // the position was reset, and not by a take-over
}

type doubt struct {
	sent, written []outbox.Identity
}

func newDisk(number int) *disk { return &disk{number: number, files: vfs.NewCrashableMem()} }

// dirs is a set of state directories.
type dirs uint8

func (s dirs) has(d *disk) bool { return s>>d.number&1 == 1 }

func (s *dirs) set(d *disk, in bool) {
	if *s &^= 1 << d.number; in {
		*s |= 1 << d.number
	}
}

// state is the store as one process uses it: app.State around the real thing.
type state struct {
	*checkpoint.Store
	*checkpoint.Waits
	i       *incarnation
	checked int // entries of the log up to which the checkpoint was checked

	one        sync.Mutex // a commit or a reset at a time, so that generation is the store's; taken before world.mu
	generation uint64
}

// openState opens the store, as the process does, and compares what it holds with what must be there.
func (i *incarnation) openState() (*state, error) {
	w := i.w
	var ops atomic.Int64
	files := errorfs.Wrap(i.files, errorfs.InjectorFunc(func(errorfs.Op) error {
		if n := ops.Add(1); i.plan.end == endKillAtFile && n == int64(i.plan.after)*2 {
			i.kill("at a file operation")
		}
		return nil
	}))
	opts := checkpoint.Options{FS: files, Log: i.log, Simulated: true, OnFatal: func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.violation("disk", "the store failed: %v", err)
	}}
	store, err := checkpoint.Open(stateDir, opts)
	var corrupt *checkpoint.CorruptError
	if errors.As(err, &corrupt) {
		store, err = i.reopen(opts, err)
	}
	if err != nil {
		return nil, err
	}
	s := &state{Store: store, Waits: store.Waits, i: i}
	journal, err := store.Journal()
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	counts, err := store.Waits.Redeliveries()
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.dead {
		return s, nil // killed while it opened: the next one will see
	}
	s.checkReopened(journal)
	if w.plan.again.sent.After > 0 {
		s.checkCounts(counts)
	}
	return s, nil
}

const stateDir = "state"

// reopen moves a damaged store aside. The engine may find damage after a loss of power that left any part of a directory's
// new entries, which file systems with ordered journals do not do.
func (i *incarnation) reopen(opts checkpoint.Options, cause error) (*checkpoint.Store, error) {
	w := i.w
	w.mu.Lock()
	torn := i.disk.torn
	if torn {
		w.loseState(i.disk, "damaged: "+cause.Error())
	}
	w.mu.Unlock()
	if !torn {
		return nil, cause
	}
	if _, err := checkpoint.Quarantine(stateDir, opts.FS); err != nil {
		return nil, err
	}
	return checkpoint.Open(stateDir, opts)
}

// loseState forgets what must be there. Callers hold mu.
func (w *world) loseState(d *disk, why string) {
	d.lost, d.anchored, d.doubt, d.moving, d.sign = true, false, nil, nil, signState{}
	for _, r := range w.lives {
		r.journalled.set(d, false)
		r.anchored(d)
		r.forgetCounts(d)
	}
	d.passAt = nil
	w.note(0, "state lost", "", why, 0)
}

// checkReopened compares the store after a start with what must be there. Callers hold mu.
func (s *state) checkReopened(journal []outbox.Completion) {
	w, was := s.i.w, s.i.disk
	has := map[outbox.Identity]bool{}
	for _, e := range journal {
		has[e.Identity] = true
		w.note(s.i.life, "journal has", name(e.Identity), "", 0)
	}
	maybe := map[outbox.Identity]bool{}
	if was.doubt != nil {
		for _, id := range append(was.doubt.sent, was.doubt.written...) {
			maybe[id] = true
		}
	}
	for _, r := range w.lives {
		had := r.journalled.has(was)
		if had && !has[r.Identity] && !maybe[r.Identity] {
			w.violation("journal", "the reopened journal lacks %s", name(r.Identity))
		}
		if !had && has[r.Identity] && !maybe[r.Identity] && !r.touched {
			w.violation("journal", "the reopened journal still has %s", name(r.Identity))
		}
		r.passed.set(was, r.passed.has(was) || had && !has[r.Identity])
		r.journalled.set(was, has[r.Identity] && (had || maybe[r.Identity]))
	}
	was.doubt = nil
	at, ok := s.Store.Checkpoint()
	if was.anchored && !ok {
		w.violation("checkpoint", "the reopened store has none, it had %v", was.checkpoint)
	}
	if ok && was.anchored && !further(w.flavor, was.checkpoint, at) && (was.moving == nil || *was.moving != at) {
		w.violation("checkpoint", "the reopened store is at %v, it was at %v", at, was.checkpoint)
	}
	_, s.i.settled = s.Source()
	if ok && was.moving != nil && *was.moving == at {
		w.movedTo(was, at, was.why)
	}
	w.note(s.i.life, "open", "", at.String(), len(journal))
	was.checkpoint, was.anchored, was.moving = at, ok, nil
	s.checked = w.indexOf(at)
}

// Commit implements ack.Journal. Time passes before it, in which the position may be reset; a crash may fall into the steps
// before and after it.
func (s *state) Commit(sent []outbox.Completion, written []outbox.Identity, at *outbox.Position, generation uint64) error {
	w := s.i.w
	if s.i.step("before commit") {
		return errDead
	}
	w.mu.Lock()
	wait := w.dice("commit", uint64(s.i.life)).between(time.Microsecond, 2*time.Millisecond)
	w.mu.Unlock()
	time.Sleep(wait)
	s.i.awaitWake()
	s.one.Lock()
	defer s.one.Unlock()
	w.mu.Lock()
	if s.i.dead { // killed meanwhile; its directory may be gone
		w.mu.Unlock()
		return errDead
	}
	var stale *outbox.Position
	if generation != s.generation {
		stale, at = at, nil // of a position that was reset since
	}
	before, _ := s.Store.Checkpoint()
	s.checkCommit(sent, written, at)
	d := &doubt{written: written}
	for _, one := range sent {
		d.sent = append(d.sent, one.Identity)
	}
	s.i.disk.doubt = d
	w.mu.Unlock()
	offered := at
	if stale != nil {
		offered = stale
	}
	err := s.Store.Commit(sent, written, offered, generation)
	has := s.journalNow(len(sent)) // without mu: the kill at a file operation takes it
	w.mu.Lock()
	dead := s.i.dead
	if !dead {
		s.i.disk.doubt = nil
		if err != nil && !(s.i.setsBack != nil && errors.Is(err, checkpoint.ErrClosed)) {
			w.violation("disk", "commit: %v", err)
		}
		if now, _ := s.Store.Checkpoint(); stale != nil && now != before {
			w.violation("checkpoint", "a commit of generation %d moves it to %v in generation %d", generation, now, s.generation)
		}
		s.committed(d, at)
		for _, id := range d.sent {
			if has != nil && !has[id] {
				w.violation("journal", "%s was committed and is not there", name(id))
			}
		}
	}
	w.mu.Unlock()
	if dead || s.i.step("after commit") {
		return errDead
	}
	return err
}

// journalNow reads the journal after a commit of entries.
func (s *state) journalNow(sent int) map[outbox.Identity]bool {
	if sent == 0 {
		return nil
	}
	journal, err := s.Store.Journal()
	if err != nil {
		return nil // the killed one's
	}
	has := make(map[outbox.Identity]bool, len(journal))
	for _, e := range journal {
		has[e.Identity] = true
	}
	return has
}

// Close checks that the journal has what was committed: no later process may open it.
func (s *state) Close() error {
	journal, err := s.Journal() // without mu: the kill at a file operation takes it
	has := make(map[outbox.Identity]bool, len(journal))
	for _, e := range journal {
		has[e.Identity] = true
	}
	w := s.i.w
	w.mu.Lock()
	for _, r := range w.lives {
		if err == nil && !s.i.dead && r.journalled.has(s.i.disk) && !has[r.Identity] {
			w.violation("journal", "%s was committed and is not there at the end", name(r.Identity))
		}
	}
	w.mu.Unlock()
	return s.Store.Close()
}

func (s *state) committed(d *doubt, at *outbox.Position) {
	w := s.i.w
	for _, id := range d.written {
		if r := w.byID[id]; r != nil {
			r.journalled.set(s.i.disk, false)
			r.passed.set(s.i.disk, !s.isAhead(r, at)) // a position behind it may have been set to one before it meanwhile
		}
	}
	for _, id := range d.sent {
		if r := w.byID[id]; r != nil {
			r.journalled.set(s.i.disk, true)
			r.shown.set(s.i.disk, false)
		}
	}
	if at != nil {
		s.i.disk.checkpoint = *at
		w.note(s.i.life, "checkpoint", "", at.String()+" "+at.GTIDs, len(d.sent))
	} else {
		w.note(s.i.life, "commit of journal", "", "", len(d.sent))
	}
}

// checkCommit checks what is about to be written. Callers hold mu.
func (s *state) checkCommit(sent []outbox.Completion, written []outbox.Identity, at *outbox.Position) {
	w := s.i.w
	batch := map[outbox.Identity]bool{}
	for _, one := range sent {
		batch[one.Identity] = true
		r := w.byID[one.Identity]
		switch {
		case r == nil:
			w.violation("journal", "an entry for no row: %+v", one.Identity)
		case r.copied == s.i.life && !r.touched:
			w.checkNoCopy(s.i, r, one)
		case !r.of(s.i.life).acked && !r.touched && !s.i.read[r]:
			w.violation("journal", "an entry for %s, which the broker has not acknowledged to this process", name(r.Identity))
		}
	}
	for _, id := range written {
		if r := w.byID[id]; r != nil && r.logOnly {
			s.checkPassed(r)
		} else if r == nil || !r.shown.has(s.i.disk) && !r.gone && r != s.i.setsBack {
			w.violation("journal", "%s leaves the journal before the table has answered", name(id))
		}
	}
	if at != nil {
		s.checkCheckpoint(batch, *at)
	}
}

// checkCheckpoint checks a position that is about to become the checkpoint. Callers hold mu.
func (s *state) checkCheckpoint(batch map[outbox.Identity]bool, at outbox.Position) {
	w, d, n := s.i.w, s.i.disk, s.i.w.indexOf(at)
	if d.anchored && !further(w.flavor, d.checkpoint, at) {
		w.violation("checkpoint", "goes back from %v to %v", d.checkpoint, at)
	}
	if s.i.source != w.id || d.source != (server.ID{}) && d.source != w.id {
		return // of a server that is gone; until the position is set for the new one, the recorded server is the old one too
	}
	if at.File != "" && w.indexBehind(at) != n {
		w.violation("checkpoint", "%v is behind %d transactions, its GTIDs are behind %d", at, w.indexBehind(at), n)
	}
	if n > 0 && at.GTIDs != w.log[n-1].after {
		w.violation("checkpoint", "%v has GTIDs %q, the log has %q there", at, at.GTIDs, w.log[n-1].after)
	}
	if reached := s.i.reached; reached.File != "" && at.File != "" && reached.Compare(at) < 0 {
		w.violation("checkpoint", "%v is ahead of %v, where the stream is", at, reached)
	}
	for ; s.checked < n; s.checked++ {
		for _, r := range w.log[s.checked].rows {
			if why := w.settled(s.i, r); why != "" && !batch[r.Identity] {
				w.violation("checkpoint", "%v passes %s, which is %s", at, name(r.Identity), why)
			}
		}
	}
}

// Reset implements app.State.
func (s *state) Reset(id server.ID, at outbox.Position, generation uint64, reason string) error {
	if s.i.step("before anchor") {
		return errDead
	}
	w := s.i.w
	w.mu.Lock()
	s.i.disk.moving, s.i.disk.why = &at, reason
	w.mu.Unlock()
	s.one.Lock()
	defer s.one.Unlock()
	err := s.Store.Reset(id, at, generation, reason)
	s.generation = generation
	w.mu.Lock()
	if !s.i.dead {
		s.i.disk.moving = nil
		s.i.disk.anchored, s.i.disk.checkpoint, s.i.disk.source = true, at, id
		if accepted := reason == byOperator || !s.i.settled || s.i.accepts > 0 && reason == byFlag; accepted && id == w.id {
			s.i.accepts = w.replaced
		}
		s.i.settled = true
		w.note(s.i.life, "anchor", "", reason+" "+at.String()+" "+at.GTIDs, 0)
		s.checked = w.indexOf(at)
		s.i.anchoredAt(at)
		w.movedTo(s.i.disk, at, reason)
	}
	w.mu.Unlock()
	if s.i.step("after anchor") {
		return errDead
	}
	return err
}

// AddGap implements app.State.
func (s *state) AddGap(gap outbox.Gap) (uint64, error) {
	if s.i.step("before gap") {
		return 0, errDead
	}
	n, err := s.Store.AddGap(gap)
	if s.i.step("after gap") {
		return 0, errDead
	}
	return n, err
}
