// Package soak runs the relay binary between a real database and a broker, under load, with one fault after the other. At quiet
// points it checks every promise: nothing is lost, nothing is invented, each copy is explained, every row is SENT with its
// attempts unchanged, and the process has not grown.
//
// The faults, their order, lengths and pauses depend on the seed alone. Goroutines: the application's writers, which stop with
// the test.
package soak

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Kind is what a fault does.
type Kind string

// The faults. Those with a length end after it.
const (
	KillRelay      Kind = "kill -9 of the relay"
	RestartRelay   Kind = "stop and start of the relay"
	FreezeRelay    Kind = "SIGSTOP of the relay"
	CutDatabase    Kind = "connections to the database cut"
	HoleDatabase   Kind = "network to the database drops packets"
	SlowDatabase   Kind = "network to the database slow"
	RefuseDatabase Kind = "database refuses connections"
	KillSessions   Kind = "KILL of the relay's sessions"
	PurgeLogs      Kind = "logs purged while the relay is down"
	RestartServer  Kind = "restart of the database server"
	StopBroker     Kind = "broker away"
	FreezeBroker   Kind = "broker swallows"
	LoseReplies    Kind = "broker's replies lost"
	RefuseMessages Kind = "broker busy"
	CheckpointBack Kind = "checkpoint set back"
)

// Fault is one entry of a plan.
type Fault struct {
	Pause  time.Duration // before it
	Kind   Kind
	Length time.Duration
	Kill   bool // the relay is killed during it, and started again after it
}

// String implements fmt.Stringer.
func (f Fault) String() string {
	text := fmt.Sprintf("after %v: %s for %v", f.Pause, f.Kind, f.Length)
	if f.Kill {
		text += ", kill -9 of the relay within"
	}
	return text
}

// Pace is the rate of faults.
type Pace struct {
	MinPause, MaxPause   time.Duration
	MinLength, MaxLength time.Duration
}

// Plan is an endless list of faults.
type Plan struct {
	rand  *rand.Rand
	pace  Pace
	kinds []Kind
	deck  []Kind // the rest of a shuffled deck, so that every kind occurs
}

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64, pace Pace, kinds ...Kind) *Plan {
	return &Plan{rand: rand.New(rand.NewPCG(seed, 0)), pace: pace, kinds: kinds}
}

// Next returns the next fault.
func (p *Plan) Next() Fault {
	if len(p.deck) == 0 {
		p.deck = append(p.deck, p.kinds...)
		p.rand.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	f := Fault{
		Kind: p.deck[0], Pause: p.between(p.pace.MinPause, p.pace.MaxPause),
		Length: p.between(p.pace.MinLength, p.pace.MaxLength), Kill: p.rand.IntN(4) == 0,
	}
	p.deck = p.deck[1:]
	switch f.Kind {
	case KillRelay, RestartRelay, FreezeRelay, PurgeLogs, CheckpointBack, CutDatabase, KillSessions, RestartServer:
		f.Kill = false
	}
	return f
}

func (p *Plan) between(low, high time.Duration) time.Duration {
	return low + time.Duration(p.rand.Int64N(int64(high-low)/int64(time.Millisecond)+1))*time.Millisecond
}
