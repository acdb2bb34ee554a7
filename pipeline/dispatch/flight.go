package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
	"github.com/canal-outbox/canal-outbox/sink"
)

// flight is the window of the rows in memory that were taken over: those at the sink, in the retry buffer and held; with the rows behind them,
// which keyorder counts, they are bounded together. Probe rows are not bounded by it, see probes.go.
type flight struct {
	*core
	*broker
	atSink    tracker.Window
	retry     buffer           // to be sent again, oldest first
	held      buffer           // rows that no sweep would find, see hold
	sequence  uint64           // of the row of such a table that came last
	probeRows []*tracker.Entry // of parts that are away
	probesOut int              // probe rows at the sink
	stuck     stuckTables
}

// stuckTables are tables whose statuses cannot be written, see Acks.Stuck.
type stuckTables struct {
	tables     map[string]bool
	rows, left int // which take no room from other tables
}

// buffer is rows in memory that wait, and their window.
type buffer struct {
	tracker.Window
	rows []*tracker.Entry
}

func (b *buffer) add(e *tracker.Entry) {
	b.rows = append(b.rows, e)
	b.Add(e)
}

// take takes out the rows for which ready returns true, oldest first. They count until ready has returned.
func (b *buffer) take(ready func(*tracker.Entry) bool) (taken []*tracker.Entry) {
	b.rows = slices.DeleteFunc(b.rows, func(e *tracker.Entry) bool {
		if !ready(e) {
			return false
		}
		b.Remove(e)
		taken = append(taken, e)
		return true
	})
	return taken
}

// inMemory is the window of all rows that count. Callers hold mu.
func (f *flight) inMemory() tracker.Window {
	return f.atSink.Plus(f.retry.Window).Plus(f.held.Window).Plus(f.order.Behind())
}

// room reports whether one more message may go to the sink. The retry buffer counts, because its messages go there again. With
// no row in memory there is always room, so that a message above every limit is still sent. Callers hold mu.
func (f *flight) room(path outbox.Path) bool {
	memory, unwritten := f.inMemory(), f.tracker.Unwritten()
	unwritten.Swept += memory.Swept
	return f.takes() && tracker.Limit{Rows: f.cfg.MaxInFlight, Bytes: f.cfg.MaxInFlightBytes}.Room(memory, path) && f.mayWait(unwritten, path)
}

// askStuck asks which tables are stuck. Callers hold mu.
func (f *flight) askStuck() {
	f.stuck.tables, f.stuck.rows, f.stuck.left = f.acks.Stuck(f.cfg.MaxUnwritten/stuckShare, f.cfg.MaxLeft/stuckShare)
}

// mayWait reports whether one more row may wait for its status. Callers hold mu.
func (f *flight) mayWait(unwritten tracker.Window, path outbox.Path) bool {
	unwritten.Rows = max(0, unwritten.Rows-f.stuck.rows)
	return tracker.Limit{Rows: f.cfg.MaxUnwritten, Bytes: f.cfg.MaxInFlightBytes}.Room(unwritten, path) && f.tracker.Left()-f.stuck.left < f.cfg.MaxLeft
}

// takes reports whether the breaker lets a fresh message pass: when it is closed, and as the trial of a half-open one when the retry
// buffer has none or a fresh message goes first. Callers hold mu.
func (f *flight) takes() bool {
	return f.breaker.state == breakerClosed || f.freshTrial(time.Now())
}

// freshTrial reports whether a fresh message may be the trial of a half-open breaker. Callers hold mu.
func (f *flight) freshTrial(now time.Time) bool {
	return f.breaker.mayTry(now) && (f.retry.Rows == 0 || f.breaker.freshFirst(now))
}

// Room reports whether a fresh row would be taken at once.
func (f *flight) Room() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room(outbox.PathBinlog)
}

// SweptSince returns when the row of a sweep was first sent that has had no final answer for the longest time; zero when there is none. It looks
// at every row that has an owner.
func (f *flight) SweptSince() (since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tracker.Each(func(e *tracker.Entry) {
		if sent := e.Sends.First; e.Swept() && !sent.IsZero() && (since.IsZero() || sent.Before(since)) {
			since = sent
		}
	})
	return since
}

// launch hands a row to the sink when mu is released. Callers hold mu.
func (f *flight) launch(e *tracker.Entry, now time.Time) {
	if e.Sends.Count == 0 {
		e.Sends.First = now
	}
	e.Sends.InFlight = true
	e.Sends.Count++
	if f.atSink.Rows == 0 {
		f.quietSince = now
		if f.retry.Rows == 0 {
			f.unansweredSince = now
		}
	}
	f.breaker.launched(now, e.Sends.Count > 1)
	f.atSink.Add(e)
	f.ready = append(f.ready, e.Message)
}

// again hands a row in memory to the sink another time. If it may not go before another row of its key any more, it is left to the sweep with
// those behind it. It reports whether the row goes. Callers hold mu.
func (f *flight) again(e *tracker.Entry, now time.Time) bool {
	if !f.order.Again(e) {
		f.deferRow(e, outbox.CauseOrder, now)
		f.broadcast() // no answer follows that would show the room
		return false
	}
	f.launch(e, now)
	return true
}

// land counts a row that the sink has answered. Callers hold mu.
func (f *flight) land(e *tracker.Entry) {
	e.Sends.InFlight = false
	f.atSink.Remove(e)
}

// hold keeps a row until its topic works, and not before a time. It is for a row whose table has no status (Message.LogOnly), which cannot be left
// to a sweep: it counts as a row in memory, the checkpoint waits for it, and the reader stops when the limit is reached. Such a row whose
// part of the cluster is away stays in the retry buffer. Callers hold mu.
func (f *flight) hold(e *tracker.Entry, until time.Time) {
	e.Sends.RetryAt = until
	f.held.add(e)
	f.kick()
}

// sendHeld sends the held rows whose time has come, in the order in which they came. Callers hold mu.
func (f *flight) sendHeld(now time.Time) {
	due := f.held.take(func(e *tracker.Entry) bool { return !now.Before(e.Sends.RetryAt) && !f.topics.has(e.Message.Topic) })
	slices.SortFunc(due, func(a, b *tracker.Entry) int { return cmp.Compare(a.Sends.Sequence, b.Sends.Sequence) })
	for _, e := range due {
		f.launch(e, now)
	}
}

// resendPauses are before the second and further sends of a message.
var resendPauses = outbox.Backoff{Base: 200 * time.Millisecond, Max: 5 * time.Second}

// sendAgain puts a message into the retry buffer and feeds the breaker, unless the trouble is that of a part of the cluster. Callers
// hold mu.
func (f *flight) sendAgain(e *tracker.Entry, r *sink.Result, part bool, now time.Time) {
	e.Sends.RetryAt = now.Add(resendPauses.Delay(e.Sends.Count-1, 0.5))
	f.retry.add(e)
	f.failed(r, part, now)
	f.kick()
}

// resend hands messages of the retry buffer to the sink again: all that are due while the breaker is closed, one while it is
// half-open, the oldest first, which puts a failed trial at the end of the line. The reader is woken when its fresh message may be the
// trial. A row that must not go before another one of its key any more is left to the sweep, and the others go.
func (f *flight) resend(now time.Time) {
	f.mu.Lock()
	defer f.handOn()
	f.untried(now)
	switch {
	case f.freshTrial(now):
		f.broadcast()
	case f.breaker.mayTry(now):
		sent := false
		f.retry.take(func(e *tracker.Entry) bool {
			if sent {
				return false
			}
			sent = f.again(e, now)
			return true
		})
	case f.breaker.state == breakerClosed:
		f.sendProbes(now)
		f.sendHeld(now)
		f.retry.take(func(e *tracker.Entry) bool {
			if now.Before(e.Sends.RetryAt) {
				return false
			}
			f.again(e, now)
			return true
		})
	}
}

// untried closes a half-open breaker when no row is left that could be the trial or whose answer is due: the next message is the
// trial. This is also the case after the last trial, if a part of the cluster left it without an answer: it is a probe row now, and probe rows
// and sweeps wait for the breaker. Callers hold mu.
func (f *flight) untried(now time.Time) {
	if f.breaker.mayTry(now) && f.retry.Rows+f.atSink.Rows == 0 {
		f.breaker.answered()
		f.trouble = ""
		f.log.Info("the broker answers again")
		f.closed()
	}
}

// answered records a sign of life. Callers hold mu.
func (f *flight) answered(topic string, now time.Time, published bool) {
	f.unansweredSince = now
	if published {
		if len(f.lastOK) < maxTopics || !f.lastOK[topic].IsZero() {
			f.lastOK[topic] = now
		}
		f.resume(topic)
	}
	f.trouble = ""
	if f.breaker.answered() {
		for _, e := range f.retry.rows { // the outage is over for all of them
			e.Sends.RetryAt = now
		}
		f.log.Info("the broker takes messages again", zap.Int("to_be_sent_again", f.retry.Rows))
		f.closed()
	}
}

// watch opens the breaker when the broker is silent: the client's own promise may take much longer than that.
func (f *flight) watch(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.atSink.Rows > 0 && f.breaker.state == breakerClosed && now.Sub(f.quietSince) > silenceLimit {
		f.breaker.open(now)
		f.trouble = "no answer to a message since " + f.unansweredSince.Format(time.TimeOnly)
		f.broadcast() // a stop does not wait any longer
		f.log.Warn(fmt.Sprintf("no answer from the broker for %v; sending paused, no retry counted", silenceLimit), zap.Int("in_flight", f.atSink.Rows))
	}
}

// waits reports whether something in memory waits for a time. Callers hold mu.
func (f *flight) waits() bool {
	return f.retry.Rows+len(f.probeRows)+f.held.Rows > 0 || f.breaker.state != breakerClosed || len(f.topics) > 0
}
