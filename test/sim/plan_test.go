package sim

import (
	"time"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

const tableName = "shop.t_local_message"

// logging is what the log holds about positions.
type logging int

const (
	mysqlGTID logging = iota
	mysqlFiles
	mariaDB
)

// draw makes the plan of a seed.
func draw(seed uint64) *plan {
	p := newPlan(seed)
	p.drawTeam(seed)
	p.drawReadBack(seed)
	p.drawExactly(seed)
	p.drawLeft(seed)
	return p
}

// plan is what a seed decides before the run begins. Times are since its beginning.
type plan struct {
	quiet     bool // nothing fails
	logging   logging
	ownLog    bool          // the relay's own updates are in the log too
	ordered   bool          // the table keeps the order of its keys
	stamped   bool          // the table shows whether a status was ever written (last_exec_time)
	twoTables bool          // have a status
	hasty     bool          // a refused row waits for minutes, and its owner deletes it or marks it as sent before
	grace     time.Duration // that the application has to publish a row itself; 0: it leaves that to the relay
	again     againPlan
	settings  relay.Settings
	work      time.Duration // transactions commit until then
	healed    time.Duration // faults happen until then
	txns      []txnPlan
	lives     []life // of the process, one after the other; the last one ends with the run

	broker     []window // whole broker
	partition  []window // one partition: a third of the keys; silent: the sink does not know that it is only a part
	topic      []window // topicB is missing
	database   []window
	stalls     []window // of the stream: nothing comes, not even its end
	errors     float64  // of statements
	lost       float64  // of replies of the broker whose message was stored
	swallowed  float64  // messages without a trace
	cuts       float64  // of the stream, for each transaction
	invisible  float64  // of transactions whose rows are visible late
	unordered  bool     // they become visible in another order than that of the log
	operations []operation
	team       *teamPlan           // nil: one process
	readBack   *relay.LifeSettings // nil: the topics are not read back
	exactly    bool                // sink.kafka.exactly_once
	bounds     kafka.Bounds
	locked     map[string]window // tables that other sessions have locked
}

type window struct {
	from, to time.Duration
	silent   bool // no answer at all, instead of an error
}

func (w window) covers(at time.Duration) bool { return w.from <= at && at < w.to }

func covering(list []window, at time.Duration) (window, bool) {
	for _, w := range list {
		if w.covers(at) {
			return w, true
		}
	}
	return window{}, false
}

// life is one run of the process.
type life struct {
	end   ending
	after int           // endKillAtStep: the number of steps
	at    time.Duration // endKill, endStop: the time after its begin
	down  time.Duration // until the next
	purge bool          // the log is purged meanwhile
	lose  bool          // the state directory is lost
}

type ending int

const (
	endRun        ending = iota // with the simulation
	endKill                     // kill -9 at a time
	endKillAtStep               // kill -9 between two steps
	endKillAtFile               // kill -9 at a file operation of the store
	endStop                     // SIGTERM
)

// kind is what is special about a transaction.
type kind int

const (
	plain kind = iota
	rolledBack
	delayed    // due later
	heldAtOnce // starts in a state of the application
	deferred   // in the log, but not as rows: statement, rewritten, oversize, unmapped
	xa         // PREPARE in the log, outcome later
	hidden     // not in the log at all
	foreign    // no row of ours
	shortLived // its rows are deleted right afterwards
	truncation
	logged // of the table without a status, deleted at once
)

type txnPlan struct {
	at     time.Duration // when it begins
	takes  time.Duration // until its commit
	late   time.Duration // from its place in the log until its rows are visible
	kind   kind
	rows   int
	cause  outbox.Cause // deferred
	commit bool         // xa
}

// operation is what a second writer or an operator does.
type operation struct {
	at    time.Duration
	what  action
	row   uint64 // which, modulo those that fit
	lasts time.Duration
}

type action int

const (
	doHold     action = iota // PENDING -> a state of the application, and back later
	doMark                   // PENDING -> SENT by another sender
	doDelete                 // any row
	doReset                  // SENT or FAILED -> PENDING
	doEdit                   // new body
	doPostpone               // due later
	doLock                   // holds the lock of a row
	doMoveTo                 // checkpoint set
	doTrigger                // an operator's sweep
	doRotate                 // FLUSH LOGS
	doPurge                  // of what was read
	doFailover               // to another server with the same history
	doReplace                // by a server with another history
	actions
)

func newPlan(seed uint64) *plan {
	d := newDice(seed, "plan")
	p := &plan{quiet: d.chance(0.25), logging: pick(d, mysqlGTID, mysqlGTID, mysqlFiles, mariaDB), ownLog: d.chance(0.5)}
	p.work = d.between(2*time.Second, 9*time.Second)
	if seed >= teams {
		p.work += 4 * time.Second
	}
	p.healed = p.work + 2*time.Second
	p.invisible = pick(d, 0, 0.1, 0.4)
	p.settle(d)
	p.settings.Fallback.Workers = 1 + newDice(seed, "workers").n(3)
	p.settings.Ack.SentWithin = pick(newDice(seed, "late statuses"), p.settings.Ack.WriteEvery, p.settings.Ack.WriteEvery, 200*time.Millisecond+17)
	p.drawTxns(d)
	p.drawOrdering(seed)
	p.drawLogOnly(newDice(seed, "log only"))
	p.drawGrace(newDice(seed, "grace"))
	p.drawAgain(newDice(seed, "again"))
	p.drawHasty(newDice(seed, "hasty"))
	p.drawTables(seed)
	for range d.n(3) {
		p.operations = append(p.operations, operation{at: d.between(0, p.work), what: doRotate})
	}
	if p.quiet {
		if p.settings.Pipeline.MaxUnwritten > 0 { // the relay has room for many more rows than wait for each other
			p.settings.Ack.SentWithin = p.settings.Ack.WriteEvery
		}
		p.lives = []life{{end: endRun}}
		if d.chance(0.3) { // rows that become due between two sweeps are late unless a timer publishes them
			p.settings.Fallback.Interval = d.between(5*time.Second, 20*time.Second)
		}
		return p
	}
	p.drawFaults(d)
	p.drawLives(d)
	for range d.n(8) {
		p.operations = append(p.operations, operation{
			at: d.between(500*time.Millisecond, p.healed), what: pick(d, action(d.n(int(actions))), action(d.n(int(actions))), doReset), row: d.next(), lasts: d.between(100*time.Millisecond, 2*time.Second),
		})
	}
	return p
}

// settle draws the settings: everything is shorter than in earnest, so that a run needs few virtual seconds.
func (p *plan) settle(d *dice) {
	p.settings = relay.Settings{
		Pipeline: pipeline.Config{
			MaxInFlight: pick(d, 0, 0, 3, 12), MaxUnwritten: pick(d, 0, 0, 6), MaxRetry: d.n(4),
			Backoff: outbox.Backoff{Base: d.between(50*time.Millisecond, 500*time.Millisecond), Max: 2 * time.Second},
		},
		// Not multiples of each other, so that nothing is due at the same nanosecond.
		Ack: ack.Config{
			CommitEvery: 5*time.Millisecond + d.between(1, time.Microsecond), CommitWithin: 17*time.Millisecond + 13, WriteEvery: 20*time.Millisecond + d.between(1, time.Microsecond),
			Retry: outbox.Backoff{Base: 100*time.Millisecond + d.between(1, time.Microsecond), Max: 2 * time.Second},
		},
		Fallback: fallback.Config{
			Tables: []string{tableName}, Interval: d.between(time.Second, 4*time.Second), Threshold: d.between(time.Second, 4*time.Second),
			Patience: d.between(200*time.Millisecond, 1500*time.Millisecond), ClaimTimeout: d.between(time.Second, 5*time.Second), Batch: pick(d, 0, 2),
			Timers: pick(d, 0, 0, 2, 5),
		},
		Stop: d.between(200*time.Millisecond, 3*time.Second),
	}
}

func (p *plan) drawTxns(d *dice) {
	odds := []struct {
		kind kind
		n    int
	}{{plain, 70}, {rolledBack, 5}, {delayed, 5}, {heldAtOnce, 2}, {deferred, 5}, {xa, 3}, {hidden, 3}, {foreign, 8}, {shortLived, 3}, {truncation, 1}}
	total := 0
	for _, o := range odds {
		total += o.n
	}
	at := time.Duration(0)
	count := d.in(20, 60)
	for range count {
		t := txnPlan{takes: d.between(10*time.Microsecond, 3*time.Millisecond), rows: 1, cause: pick(d, outbox.CauseStatement, outbox.CauseRewritten, outbox.CauseOversize, outbox.CauseUnmapped), commit: d.chance(0.7)}
		at += d.between(0, 2*p.work/time.Duration(count)) * time.Duration(pick(d, 0, 1, 1)) // bursts
		t.at = min(at, p.work)
		if d.chance(0.1) {
			t.takes = d.between(3*time.Millisecond, 300*time.Millisecond)
		}
		if d.chance(p.invisible) {
			t.late = d.between(time.Millisecond, pick(d, 10*time.Millisecond, 300*time.Millisecond))
		}
		roll := d.n(total)
		for _, o := range odds {
			if roll -= o.n; roll < 0 {
				t.kind = o.kind
				break
			}
		}
		switch {
		case d.chance(0.2):
			t.rows = d.in(2, 6)
		case d.chance(0.0005) && !p.quiet:
			t.rows = d.in(500, 1100) // more than one statement takes
		}
		p.txns = append(p.txns, t)
	}
}

// drawLeft lets sent rows wait in the journal alone, as a relay without a standby does, and as a start does with a large journal.
func (p *plan) drawLeft(seed uint64) {
	d := newDice(seed, "left")
	if d.chance(0.4) {
		return
	}
	p.settings.Ack.LeaveFrom = pick(d, 1, 1, 2, 4) // also of a start with a configuration that leaves nothing
	if seed >= teams || p.exactly || len(p.settings.Pipeline.Ordered) > 0 {
		return
	}
	p.settings.Ack.Leaves = func(string) bool { return true }
	if !p.quiet {
		p.settings.Pipeline.MaxLeft = pick(d, 0, 0, 3, 10)
	}
}

// drawLogOnly adds transactions of the table without a status, to some plans.
func (p *plan) drawLogOnly(d *dice) {
	if !d.chance(0.3) {
		return
	}
	if p.quiet {
		p.settings.Pipeline.MaxInFlight = 0 // a refused row is held in memory until its next attempt, and would fill a small one
	}
	for range d.in(5, 25) {
		t := txnPlan{kind: logged, rows: pick(d, 1, 1, 1, d.in(2, 6)), at: d.between(0, p.work), takes: d.between(10*time.Microsecond, 3*time.Millisecond)}
		p.txns = append(p.txns, t)
	}
}

func (p *plan) windows(d *dice, chance float64, longest time.Duration) []window {
	var list []window
	for range 2 {
		if d.chance(chance) {
			from := d.between(0, p.work)
			list = append(list, window{from, min(p.healed, from+d.between(50*time.Millisecond, longest)), d.chance(0.4)})
		}
	}
	return list
}

func (p *plan) drawFaults(d *dice) {
	p.broker = p.windows(d, 0.2, 8*time.Second)
	p.partition = p.windows(d, 0.15, 3*time.Second)
	p.topic = p.windows(d, 0.15, 4*time.Second)
	p.database = p.windows(d, 0.2, 4*time.Second)
	p.stalls = p.windows(d, 0.15, 4*time.Second)
	p.errors = pick(d, 0, 0, 0.02, 0.15)
	p.lost = pick(d, 0, 0, 0.02, 0.2)
	p.swallowed = pick(d, 0, 0, 0.02, 0.2)
	p.cuts = pick(d, 0, 0, 0.02, 0.1)
}

func (p *plan) drawLives(d *dice) {
	for range pick(d, 0, 1, 1, 2, 3) {
		l := life{
			end: pick(d, endKill, endKillAtStep, endKillAtStep, endKillAtStep, endKillAtFile, endStop), after: d.in(1, pick(d, 20, 150)),
			at: d.between(10*time.Millisecond, p.work), down: d.between(150*time.Millisecond, 2*time.Second), purge: d.chance(0.1),
		}
		l.lose = l.end != endStop && d.chance(0.1)
		p.lives = append(p.lives, l)
	}
	p.lives = append(p.lives, life{end: endRun})
}
