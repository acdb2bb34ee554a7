package keyorder

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

const (
	readPause  = 4                // a reading that is asked for again waits this many times the duration of the last one
	maxShares  = 1 << 16          // of a closed table
	sharePause = 2 * time.Second  // without progress, for which a share of a closed table lasts
	shareLasts = 30 * time.Second // at most
)

// reading says whether the rows of a table that are not final were read. Only rows of a table that is complete go out.
type reading uint8

const (
	complete reading = iota
	notRead
	inProgress
)

// tableState says what is known of the rows of a table that are not final.
//
// An open table is known whole: each of these rows is in memory or left to a key. With more rows than can be remembered it is closed: it is read
// once for each share of the keys, by their hash. Rows that are not remembered stay in the table meanwhile, so that the order is kept, and the
// log's rows are left to the sweep.
type tableState struct {
	reading  reading
	again    bool      // to be read once more, for rows that are found before the log shows them, and for deferred ones
	rest     time.Time // no such reading before
	begun    int       // readings; of the rows that were inserted when this number had begun
	done     int       // the last that was complete: it has shown all that are before rows of an earlier one
	closed   bool
	shares   uint64 // of the keys; 0 and 1: all at once
	share    uint64 // whose keys are remembered
	tight    bool   // in this share, of some keys the first rows alone are
	began    time.Time
	moved    time.Time               // when a row was forgotten last
	reported bool                    // that it is closed
	rows     int                     // that are remembered
	seen     map[outbox.Identity]int // the readings that had begun when the table showed rows that the last Begin forgot
	deferred deferredRows
}

// close begins to leave rows that are not remembered.
func (t *tableState) close(now time.Time) {
	if !t.closed {
		t.closed, t.began = true, now
	}
}

// shareOver reports whether a closed table is to be read for other keys.
func (t *tableState) shareOver(now time.Time) bool {
	return t.closed && (t.rows == 0 || now.Sub(t.moved) > sharePause && now.Sub(t.began) > sharePause || now.Sub(t.began) > shareLasts)
}

// nextShare continues with the next keys. After the last ones there are fewer shares, because the rows may have become fewer.
func (t *tableState) nextShare() {
	if t.share++; t.share >= t.shares {
		t.share, t.shares = 0, t.shares/2
	}
}

// has reports whether a key belongs to the share.
func (t *tableState) has(k Key) bool {
	if t.shares < 2 {
		return true
	}
	h := fnv.New64a()
	h.Write([]byte(k.Topic + "\x00" + k.Key)) // which never fails
	return h.Sum64()%t.shares == t.share
}

// Unread makes tables to be read, because a part of the log was skipped. A reading that has begun does not count.
func (o *Order) Unread() {
	for _, t := range o.tables {
		t.reading = notRead
	}
	o.ahead, o.wakes = outbox.Position{}, true
}

// Reading is the reading of a table, page by page: Due, Begin, Page for each page, then End or Failed.
type Reading struct {
	*memory
	table *tableState
}

// Reading returns the reading of a table.
func (o *Order) Reading(name string) Reading { return Reading{&o.memory, o.tables[name]} }

// Due reports whether the table is to be read now.
func (r Reading) Due(now time.Time) bool {
	t := r.table
	if t.reading == complete && t.shareOver(now) {
		t.nextShare()
		t.reading = notRead
	}
	again := t.again && !now.Before(t.rest)
	if again && t.closed { // what a closed table remembers is forgotten first
		t.reading = notRead
	}
	return again || t.reading != complete
}

// Begin begins a reading. It forgets what a closed table remembers: what is left of it is read again.
func (r Reading) Begin(owners Owners, now time.Time) {
	t := r.table
	t.seen = nil
	if t.closed {
		r.forgetTable(t, owners, now)
	}
	t.begun++
	t.again, t.tight = false, false
	t.closed = t.shares > 1 // read whole, it is open unless there is no room
	if t.reading == notRead {
		t.reading = inProgress
	}
}

// forgetTable forgets the rows of a table that no entry brings, but for when the table has shown them.
func (m *memory) forgetTable(t *tableState, owners Owners, now time.Time) {
	t.seen = map[outbox.Identity]int{}
	for _, s := range slices.Clone(m.waiting) {
		if m.tables[s.Table] != t {
			continue
		}
		s.left = slices.DeleteFunc(s.left, func(row *leftRow) bool {
			if row.entry != nil && owners.Has(row.entry) {
				return false
			}
			t.rows--
			t.moved = now
			if row.inTable {
				t.seen[row.id] = row.read
			}
			delete(m.rows, row.id)
			return true
		})
		s.look, s.looks = time.Time{}, 0
		m.tidy(s)
	}
}

// Page remembers the rows of a page. It reports whether to read on: without room it keeps the first rows of each key that has some, and a key
// that would have none ends the reading. A row that comes before one in memory, or before one that is remembered, is remembered in any case and
// in any share.
func (r Reading) Page(page []outbox.Candidate, owners Owners, now time.Time) bool {
	for i := range page {
		if !r.row(&page[i], owners, now) {
			return false
		}
	}
	return true
}

func (r Reading) row(c *outbox.Candidate, owners Owners, now time.Time) (fits bool) {
	t := r.table
	k := Key{c.Table, c.Topic, c.Key}
	if row := r.rows[c.Identity]; row != nil {
		r.sighted(row)
		return true
	}
	s := r.keys[k]
	if c.Key == "" || !t.has(k) && !s.holds(c.ID) || c.Postponed() { // also in the share of others no row may be overtaken
		return true
	}
	owner := owners.Owner(c.Identity)
	if owner != nil && (owner.Sends.Count > 0 || owner.Sends.Queued || !owner.Logged() && !owner.Swept()) {
		return true // in memory, or sent; else recovery has it and it comes, or the sweep has and its claim is being released
	}
	if !r.full(t) && !t.tight {
		r.shows(k, c, owner, now)
		return true
	}
	if s == nil && t.shares < maxShares {
		return false
	}
	t.tight, t.closed = true, true
	if !s.holds(c.ID) {
		return true
	}
	r.shows(k, c, owner, now)
	if last := s.left[len(s.left)-1]; !s.holds(last.id.ID) && (last.entry == nil || !owners.Has(last.entry)) {
		r.forget(last, now)
	}
	return true
}

// shows remembers a row that a reading shows, perhaps not for the first time.
func (r Reading) shows(k Key, c *outbox.Candidate, owner *tracker.Entry, now time.Time) {
	row := r.remember(k, c.Identity, owner, unfinishedText[c.Status], now)
	row.inTable = true
	if read, seen := r.table.seen[c.Identity]; seen {
		row.read = read
	}
}

var unfinishedText = map[outbox.Status]string{outbox.Pending: "not sent when the table was read", outbox.Sending: "claimed when the table was read"}

// Failed ends a reading that met an error: the table is read again.
func (r Reading) Failed() { r.table.again = true }

// Room says what the caller reports about a table at the end of a reading.
type Room uint8

const (
	RoomSame   Room = iota // as before
	RoomShort              // more rows wait than can be remembered: only the sweep publishes rows of the table
	RoomEnough             // all are remembered again
)

// End ends a reading that took some time; fits is what the last Page has returned. It reports whether the table is read; else it is to be
// read again at once.
func (r Reading) End(fits bool, took time.Duration, now time.Time) (done bool, room Room) {
	t := r.table
	if (!fits || t.closed) && !t.reported {
		t.reported, room = true, RoomShort
	}
	if !fits {
		t.reading = notRead // what is remembered lacks rows
		t.shares, t.share, t.closed = min(max(2, 2*t.shares), maxShares), 0, true
		return false, room
	}
	if !t.closed && t.reported {
		t.reported, room = false, RoomEnough
	}
	t.done = t.begun
	if t.reading == inProgress {
		t.reading = complete
	}
	t.began, t.moved, t.rest = now, now, now.Add(readPause*took)
	r.proven(t, now)
	return t.reading == complete, room
}
