package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// While a broker, partition or topic is away and others work, its rows are left to the sweep. A few of them stay in memory as
// probe rows. A probe row is sent from time to time, and the first answer to one shows that the part is back, so that a
// sweep starts at once. It does not hold back the checkpoint, because its row is PENDING in the table. It is dropped
// after probeTime, because its copy of the row grows old; the sweep then finds the row and makes another probe row.
const (
	maxProbes      = 8
	probeTime      = 2 * time.Minute
	probeClaimTime = 45 * time.Second // of a row under a claim: less than a claim lasts
)

var probeRowPauses = outbox.Backoff{Base: time.Second, Max: 5 * time.Second}

// leavePart leaves a row of a part that is away to the sweep, unless it is to be a probe row. Callers hold mu.
func (f *flight) leavePart(e *tracker.Entry, now time.Time) {
	switch {
	case e.Sends.Probes == 0 && f.needsProbe(e.Message):
		e.Sends.ProbeUntil = now.Add(probeTime)
		if e.Message.Claim != "" {
			e.Sends.ProbeUntil = now.Add(probeClaimTime)
		}
		f.tracker.Settle(e)
		f.leave(outbox.CauseOrder, f.order.Probe(e, now)...)
	case e.Sends.Probes == 0 || now.After(e.Sends.ProbeUntil):
		f.deferRow(e, outbox.CauseOutage, now)
		return
	}
	e.Sends.RetryAt = now.Add(probeRowPauses.Delay(e.Sends.Probes, f.Random()))
	e.Sends.Probes++
	f.probeRows = append(f.probeRows, e)
}

// needsProbe reports whether no probe row has the destination of the message. Callers hold mu.
func (f *flight) needsProbe(m *outbox.Message) bool {
	for _, e := range f.probeRows {
		if o := e.Message; o.Topic == m.Topic && o.ShardingKey == m.ShardingKey && o.Partition == m.Partition {
			return false
		}
	}
	return f.probesOut+len(f.probeRows) < maxProbes
}

// sendProbes sends the probe rows whose time has come. Callers hold mu.
func (f *flight) sendProbes(now time.Time) {
	waiting := f.probeRows[:0]
	for _, e := range f.probeRows {
		if now.Before(e.Sends.RetryAt) {
			waiting = append(waiting, e)
		} else if f.again(e, now) {
			f.probesOut++
		}
	}
	clear(f.probeRows[len(waiting):])
	f.probeRows = waiting
}

// probeBack handles the outcome of a probe row: an answer shows that its part is back. Callers hold mu.
func (f *flight) probeBack(class outbox.Class, now time.Time) {
	f.probesOut--
	switch class {
	case outbox.ClassOutage, outbox.ClassService, outbox.ClassUnknown:
		return
	}
	for _, e := range f.probeRows {
		e.Sends.RetryAt = now
	}
	f.sweeps.Trigger()
	f.kick()
}
