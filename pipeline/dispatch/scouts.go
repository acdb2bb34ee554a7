package dispatch

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/tracker"
)

// While a broker, partition or topic is away and others work, its rows are left to the sweep. A few of them stay in memory as
// scouts (probe rows). A scout is sent from time to time, and the first answer to one shows that the part is back, so that a
// sweep starts at once. A scout does not hold back the checkpoint, because its row is PENDING in the table. A scout is dropped
// after scoutTime, because its copy of the row grows old; the sweep then finds the row and makes another scout.
const (
	maxScouts       = 8
	scoutTime       = 2 * time.Minute
	scoutClaimTime  = 45 * time.Second // of a row under a claim: less than a claim lasts
	scoutPauseFirst = time.Second
)

var scoutPauses = outbox.Backoff{Base: scoutPauseFirst, Max: 5 * time.Second}

// leave leaves a row of a part that is away to the sweep, unless it is to be a scout. Callers hold mu.
func (d *Dispatch) leave(e *tracker.Entry, now time.Time) (outbox.Completion, bool) {
	switch {
	case e.Sends.Scout == 0 && d.needsScout(e.Message):
		e.Sends.ScoutUntil = now.Add(scoutTime)
		if e.Message.Claim != "" {
			e.Sends.ScoutUntil = now.Add(scoutClaimTime)
		}
		d.tracker.Settle(e)
		d.leaveToSweep(outbox.CauseOrder, d.order.Probe(e, now)...)
	case e.Sends.Scout == 0 || now.After(e.Sends.ScoutUntil):
		return d.deferRow(e, outbox.CauseOutage, now)
	}
	e.Sends.RetryAt = now.Add(scoutPauses.Delay(e.Sends.Scout, d.Random()))
	e.Sends.Scout++
	d.scouts = append(d.scouts, e)
	return outbox.Completion{}, false
}

// needsScout reports whether no scout has the destination of the message. Callers hold mu.
func (d *Dispatch) needsScout(m *outbox.Message) bool {
	for _, e := range d.scouts {
		if o := e.Message; o.Topic == m.Topic && o.ShardingKey == m.ShardingKey && o.Partition == m.Partition {
			return false
		}
	}
	return d.scoutsOut+len(d.scouts) < maxScouts
}

// sendScouts returns the scouts whose time has come. Callers hold mu.
func (d *Dispatch) sendScouts(now time.Time) (ready []*outbox.Message) {
	waiting := d.scouts[:0]
	for _, e := range d.scouts {
		if now.Before(e.Sends.RetryAt) {
			waiting = append(waiting, e)
			continue
		}
		if d.mayGoAgain(e, now) {
			d.scoutsOut++
			ready = append(ready, d.launch(e, now))
		}
	}
	clear(d.scouts[len(waiting):])
	d.scouts = waiting
	return ready
}

// scoutBack handles the outcome of a scout: an answer shows that its part is back. Callers hold mu.
func (d *Dispatch) scoutBack(class outbox.Class, now time.Time) {
	d.scoutsOut--
	switch class {
	case outbox.ClassOutage, outbox.ClassService, outbox.ClassUnknown:
		return
	}
	for _, e := range d.scouts {
		e.Sends.RetryAt = now
	}
	d.sweeps.Trigger()
	d.kick()
}
