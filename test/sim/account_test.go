package sim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// account is what the checks know of a row.
type account struct {
	records     int  // in the broker
	committedAs int  // the number of committed transactions it was in
	owed        int  // records when an operator has set it back, and one more; 0: none has
	journalled  dirs // whose journals have it
	shown       dirs // whose processes the table has answered to its SENT

	copySeen    bool // in the topic, by the process that has shown it as SENT
	foreignSent bool // another sender says that it was sent
	touched     bool // by a second writer
	refused     int  // how often a process got that as the result
	unknown     int  // times that a process got no answer, and was told that others do
	attempts    uint64

	paths []*fastPath // of each process that met it
	logAccount
	graceAccount
	againAccount
}

// fastPath is what one process did with a row that its stream offered.
type fastPath struct {
	life      int
	offered   bool
	offeredAt time.Time    // first
	sweptAt   time.Time    // when a sweep wanted to claim it first
	behind    bool         // when it was offered first, behind a row that came before the table was read
	leftAt    time.Time    // when the stream offered the transaction first in which the reader has deferred the row; zero: it has not
	taken     time.Time    // when the log showed it last, or a sweep claimed it
	acked     bool         // the process has the broker's word for it
	asked     bool         // the consumers' service was asked about it, and no copy has gone out since
	handed    bool         // to the sink, and not answered since
	answer    outbox.Class // the last one
	deferred  bool         // may have been left to the sweep by an answer, and be in memory again
	answered  bool
	swept     bool // a page of the sweep showed it
	told      bool // the check of the recovery window said that it is not to be published
	kept      bool // it has put the row into the failed-message log
	forgiven  bool // the mark was moved: its transaction is forgotten
}

// resend makes a final row PENDING again.
func (r *row) resend() {
	r.status, r.retries, r.due = outbox.Pending, 0, time.Time{}
	r.account.reset()
}

// reset is called when a row was made PENDING again: what was known of it no longer counts.
func (a *account) reset() {
	a.journalled, a.foreignSent, a.touched, a.owed = 0, false, true, 0
	var asked []*fastPath // a copy that was asked for before may still go out
	for _, f := range a.paths {
		if f.asked {
			asked = append(asked, &fastPath{life: f.life, asked: true})
		}
	}
	a.paths = asked
	a.marked = false
	for _, c := range a.counts { // it may be counted again
		c.sent, c.at = 0, time.Time{}
	}
}

// of returns the account of the row with one process, which begins empty. Callers hold mu.
func (r *row) of(life int) *fastPath {
	for _, f := range slices.Backward(r.paths) {
		if f.life == life {
			return f
		}
	}
	f := &fastPath{life: life}
	r.paths = append(r.paths, f)
	return f
}

// handedOver checks a message that a process gives to its sink. Callers hold mu.
func (w *world) handedOver(i *incarnation, m *outbox.Message) *row {
	r := w.byID[m.Identity]
	if r == nil {
		w.violation("P2", "a message of no committed row: %+v", m.Identity)
		return nil
	}
	w.note(i.life, "send", name(m.Identity), m.Path.String(), 0)
	w.checkBody(r, m)
	if m.Path == outbox.PathRedelivery {
		w.copyHanded(i, r)
		return r
	}
	w.checkOrder(i, r)
	w.checkGrace(r)
	switch {
	case r.logOnly:
		w.checkAgain(i, r)
	case r.copying == i.life:
		w.violation("P3", "%s is sent while a copy of it is in flight", name(r.Identity))
	case r.consumed && !r.foreignSent && !r.final.After(w.tookOver(i)):
		w.violation("P3", "%s is sent again though a consumer has finished it", name(r.Identity))
	case r.of(i.life).acked:
		w.violation("P3", "%s is sent again by the process that has its acknowledgement", name(r.Identity))
	case r.journalled.has(i.disk):
		w.violation("P3", "%s is sent again though the journal has it", name(r.Identity))
	case r.status == outbox.Sent && !r.foreignSent && !r.gone && !r.final.After(w.tookOver(i)):
		w.violation("P3", "%s is sent again though the table shows it as SENT", name(r.Identity))
	}
	late := r.retries > 0 || r.due.Sub(r.committed) > 2*time.Second
	if ahead := time.Until(r.due); late && ahead > 60*time.Millisecond && !r.touched && !r.gone {
		w.violation("due", "%s is sent %v before its time", name(r.Identity), ahead)
	}
	r.copied = 0
	w.checkReadBack(i, r, m)
	f := r.of(i.life)
	f.handed, f.answered, f.kept = true, false, false
	r.attempts++
	return r
}

func (w *world) checkBody(r *row, m *outbox.Message) {
	id, text, _ := strings.Cut(string(m.Body), "/")
	version, err := strconv.Atoi(text)
	if err != nil || id != r.MessageID || version > r.version || m.Key != r.key || m.Topic != r.topic {
		w.violation("P2", "%s is sent as %q, key %q, topic %q; the row has version %d", name(r.Identity), m.Body, m.Key, m.Topic, r.version)
	}
	if m.Path == outbox.PathSweep && m.Claim == "" {
		w.violation("claim", "the sweep sends %s without a claim", name(r.Identity))
	}
}

// answered notes what a process got as the result of a message. Callers hold mu.
func (w *world) answered(i *incarnation, m *outbox.Message, o outbox.Outcome) {
	r := w.byID[m.Identity]
	if m.Path == outbox.PathRedelivery {
		w.copyAnswered(i, r, o)
		return
	}
	w.note(i.life, "answer", name(r.Identity), o.Class.String(), 0)
	f := r.of(i.life)
	f.handed, f.answered, f.answer = false, true, o.Class
	if o.Class != outbox.ClassNone {
		w.disturb(i, r)
	}
	switch o.Class {
	case outbox.ClassTopic, outbox.ClassOutage, outbox.ClassService:
		f.deferred = true
	case outbox.ClassUnknown:
		f.deferred = f.deferred || o.Scope == outbox.ScopePartition
	}
	switch o.Class {
	case outbox.ClassNone:
		f.acked, r.again = true, r.again && r.anchoredOn != i.disk // the answer to a process that has lost the lease says nothing of another's
	case outbox.ClassRefused, outbox.ClassPermanent:
		r.refused++
	case outbox.ClassUnknown:
		if o.Scope == outbox.ScopeMessage {
			r.unknown++
		}
	case outbox.ClassTopic:
		i.topics[r.topic] = true
	}
}

// budget is how many refusals a row may use up. Callers hold mu.
func (w *world) budget(r *row) int {
	if r.maxRetry >= 0 {
		return r.maxRetry
	}
	return w.plan.settings.Pipeline.MaxRetry
}

// burnt is the most that a row's retry count may be: refusals, and silences that were its own. Callers hold mu.
func (r *row) burnt() int { return r.refused + r.unknown }

// settled reports whether the checkpoint may pass a row that the log showed, and if not, why. Callers hold mu.
func (w *world) settled(i *incarnation, r *row) (why string) {
	f := r.of(i.life)
	switch {
	case r.logOnly:
		return r.settledLog(i.disk)
	case r.grace > 0:
		return "" // left to a timer and the sweep
	case r.gone, r.touched, f.forgiven, r.journalled.has(i.disk), r.status != outbox.Pending:
		return ""
	case f.handed && !f.deferred && r.retries == 0: // once a refusal was written, timers and sweeps own the row
		return "in the sink's hands"
	case f.deferred && (f.handed || f.answer == outbox.ClassNone):
		return "" // left to the sweep as PENDING, and sent to see whether a part of the cluster is back
	case f.answered && f.answer == outbox.ClassNone:
		return "acknowledged and not journalled"
	case r.retries > 0, r.first.status != outbox.Pending, r.setBacks > 0:
		return "" // a refusal was written; never for the fast path
	case f.answered:
		return w.settledAnswer(i, r)
	case r.due.Sub(r.committed) > 2*time.Second, time.Until(r.due) > 0, i.topics[r.topic], f.told, f.swept:
		return "" // deferred, or the sweep may own it
	case w.leftForOthers(i, r), w.wasLocked(i, r):
		return ""
	case !f.offered:
		return "never offered"
	}
	return "offered and forgotten"
}

// settledAnswer is for rows that the sink has answered last.
func (w *world) settledAnswer(i *incarnation, r *row) string {
	f := r.of(i.life)
	if f.deferred || f.answer == outbox.ClassUnknown && w.leftForOthers(i, r) { // the gate is asked before the second send
		return ""
	}
	return "answered " + f.answer.String() + ", and the table does not show it"
}
