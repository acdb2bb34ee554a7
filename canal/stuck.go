package canal

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A stream that ends at an event is opened again at the same position. judge decides by the class of the error what follows.

const (
	// stuckPatience is how long the reader tries to pass an event that the server cannot read, so that a person can remove the
	// cause. After that it records a gap to read the rest of the log. A restart of the relay starts the time again.
	stuckPatience = 24 * time.Hour
	// maxBroken is how often an event that cannot be decoded is read, with the same error each time: another attempt reads the
	// same bytes.
	maxBroken = 3
)

// Stuck describes the event at which the reader is stuck.
type Stuck struct {
	At       outbox.Position // after the last transaction that was read: the event is in the next one
	Since    time.Time
	Attempts int
	Cause    string    // the error of the last attempt
	Cure     string    // what removes the cause
	GapAt    time.Time // when the reader records a gap and continues behind it; zero: never
	Lost     string    // the tables without a status, whose rows such a gap loses; "" when there are none
}

// String returns the problem and what to do, for people.
func (s *Stuck) String() string {
	text := fmt.Sprintf("stuck since %s at the event behind %s:%d (%d attempts): %s; %s", s.Since.UTC().Format(time.RFC3339), s.At.File, s.At.Offset, s.Attempts,
		strings.TrimSuffix(s.Cause, "."), s.Cure)
	if s.GapAt.IsZero() {
		return text
	}
	text += ". The reader tries again by itself; the sweep publishes rows of tables with a status meanwhile"
	if s.Lost != "" {
		text += ". Rows of " + s.Lost + ", without a status, wait"
	}
	text += fmt.Sprintf(". At %s it records a gap and continues at the end of the log", s.GapAt.UTC().Format(time.RFC3339))
	if s.Lost != "" {
		text += ", and rows of " + s.Lost + " in between are lost"
	}
	return text + ". To do that now: canal-outbox checkpoint set --latest"
}

// stuck counts the attempts that ended at one event.
type stuck struct {
	Stuck
	class class
}

// judge is classOf that also looks at the previous streams. It decides which ends of a stream are a gap:
// - at once, what cannot pass: the log is purged or shorter than the checkpoint, the server lost events, an event's type is
// unknown;
// - after maxBroken attempts, an event that cannot be decoded;
// - after stuckPatience, an event that the server cannot read (error 1236): its disk may be full, or its file may be repaired;
// - never, rows that only an operator may leave out (heldError).
func (r *Reader) judge(err error, platform server.Platform) (class, outbox.GapCause) {
	c, cause := classOf(err)
	if c != classStuck && c != classBroken && c != classHeld {
		return c, cause
	}
	now, at := time.Now(), r.from()
	if r.stuck == nil || r.stuck.class != c || r.stuck.At != at || c == classBroken && r.stuck.Cause != err.Error() {
		r.stuck = &stuck{Stuck: Stuck{At: at, Since: now}, class: c}
	}
	s := r.stuck
	s.Attempts++
	s.Cause = err.Error()
	switch c {
	case classBroken:
		if s.Attempts >= maxBroken {
			return classGap, outbox.GapUnknownEvent
		}
		return c, "" // not shown: the next attempts end it
	case classStuck:
		if s.GapAt = s.Since.Add(stuckPatience); !now.Before(s.GapAt) {
			return classGap, outbox.GapUnknownEvent
		}
		s.Cure, s.Lost = cure(s.Cause, platform), r.logOnly()
	case classHeld:
		var held *heldError
		errors.As(err, &held)
		s.Cause, s.Cure = held.Error(), "the reader tries again by itself"
	}
	shown := s.Stuck
	r.gauge.setStuck(&shown)
	return c, ""
}

// pastStuck records that the reader is past the event.
func (r *Reader) pastStuck() {
	if r.stuck == nil {
		return
	}
	if r.stuck.class != classBroken {
		r.log.Info("the binlog reader is past the event at which it was stuck", zap.Stringer("position", r.stuck.At), zap.Duration("after", time.Since(r.stuck.Since)))
	}
	r.stuck, r.logged = nil, "connected"
	r.gauge.setStuck(nil)
}

// logOnly names the tables without a status.
func (r *Reader) logOnly() string {
	var names []string
	for _, t := range r.cfg.Tables {
		if t.LogOnly() {
			names = append(names, t.Name())
		}
	}
	return strings.Join(names, ", ")
}

// cures match texts of error 1236, from the same sources as fatal, in lower case.
var cures = []struct{ text, do string }{
	{"out of disk space", "Make room on the server's disk"},
	{"memory allocation", "The server lacks memory: look at its limits"},
	{"checksum", "The binlog file is damaged: look at the server's disk and error log"},
	{"i/o error", "The server cannot read its binlog file: look at its disk and error log"},
}

// cure returns how to remove the cause of an event that the server, which runs on platform, cannot read.
func cure(message string, platform server.Platform) string {
	message = strings.ToLower(message)
	if strings.Contains(message, server.MaxPacket) {
		return "Raise max_allowed_packet on the server: " + platform.Cure(server.MaxPacket)
	}
	for _, c := range cures {
		if strings.Contains(message, c.text) {
			return c.do
		}
	}
	return "The binlog file is damaged or incomplete: look at the server's disk and error log"
}
