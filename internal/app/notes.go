package app

import (
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// notes keep in the state directory what a row forgets, for a trace of the row: failures and what people do in one list, and in another one the
// sends other than a first one from the log, so that a backlog does not push failures out.
type notes struct {
	relay           string // this one, for the lines
	failures, sends *checkpoint.Notes
	log             *zap.Logger
	failed          atomic.Bool // the last note could not be written
}

func newNotes(dir, relay string, log *zap.Logger) *notes {
	return &notes{relay: relay, failures: checkpoint.NewNotes(dir, "failures"), sends: checkpoint.NewNotes(dir, "sends"), log: log}
}

func (in *instance) newNotes() *notes {
	_, host := identity(in.cfg, in.state.Origin().CreatedAt)
	return newNotes(in.cfg.Checkpoint.Dir, host, in.log)
}

// take is ack.Config.Noted.
func (n *notes) take(list []outbox.Completion) {
	var failures, sends []checkpoint.Note
	now := noteTime()
	for i := range list {
		c := &list[i]
		switch c.Action {
		case outbox.ActionMarkSent:
			sends = append(sends, n.note(now, c.Identity, "sent", sent(c)))
		case outbox.ActionRetry:
			failures = append(failures, n.note(now, c.Identity, "refused", fmt.Sprintf("attempt %d: %v: %s", c.RetryCount+1, c.Class, c.Reason)))
		case outbox.ActionFail:
			failures = append(failures, n.note(now, c.Identity, "failed", fmt.Sprintf("after attempt %d: %v: %s", c.RetryCount+1, c.Class, c.Reason)))
		}
	}
	n.add(n.failures, failures)
	n.add(n.sends, sends)
}

// ways are how a row comes to be sent.
var ways = [...]string{
	outbox.PathBinlog: "read from the log", outbox.PathSweep: "found by a sweep", outbox.PathTimer: "by a timer when it was due", outbox.PathRedelivery: "as a redelivery",
}

// sent says how a row came to be sent.
func sent(c *outbox.Completion) string {
	how := ways[c.Path]
	if c.TakenOver {
		how += ", after the claim of another process"
	}
	if c.RetryCount > 0 {
		how += fmt.Sprintf(", as retry %d", c.RetryCount)
	}
	if c.Sends > 1 {
		how += fmt.Sprintf("; handed to the broker %d times, because an answer was missing", c.Sends)
	}
	return how
}

func noteTime() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (n *notes) note(at time.Time, row outbox.Identity, what, detail string) checkpoint.Note {
	return checkpoint.Note{At: at, Table: row.Table, ID: row.ID, MessageID: row.MessageID, What: what, Detail: detail, Relay: n.relay}
}

// person notes what a person did to rows.
func (n *notes) person(ids []outbox.Identity, what, detail string) {
	list, now := make([]checkpoint.Note, len(ids)), noteTime()
	for i, id := range ids {
		list[i] = n.note(now, id, what, detail)
	}
	n.add(n.failures, list)
}

// add writes notes. The message is handled whether or not it can be noted: an error is logged once, until a note can be written again.
func (n *notes) add(to *checkpoint.Notes, list []checkpoint.Note) {
	if len(list) == 0 {
		return
	}
	err := to.Add(list)
	if err != nil && !n.failed.Swap(true) {
		n.log.Warn("traces of messages will lack failures and second sends: the state directory takes no notes; look at its disk", zap.Error(err))
	}
	if err == nil {
		n.failed.Store(false)
	}
}

// of returns the notes on a row.
func (n *notes) of(row outbox.Identity) ([]operator.TraceEvent, error) {
	var events []operator.TraceEvent
	for _, from := range []*checkpoint.Notes{n.failures, n.sends} {
		list, err := from.Of(row)
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			detail := one.Detail
			if one.Relay != "" {
				detail += "; relay " + one.Relay
			}
			events = append(events, operator.TraceEvent{At: &one.At, What: one.What, Detail: detail, Source: "state"})
		}
	}
	return events, nil
}
