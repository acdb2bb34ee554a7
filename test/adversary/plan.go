// Package adversary simulates an operator who does anything at any time, during faults: two relays with a lease, tables with
// `ordering: key`, a real database server. A run is a bounded number of steps from one seed; the choice of rows depends on the
// rows that exist at that time, so a seed repeats the plan and not every row.
//
// Guarantees: at the end of a run every row is accounted for: P1 to P5 and P8 hold for rows that no operator touched, and for
// touched rows as far as the command keeps a promise (see touch).
//
// Goroutines: the application's writers, which stop with the run.
package adversary

import "math/rand/v2"

// Kind is the action of a step.
type Kind string

// The commands of operators, and manual changes of the tables.
const (
	Retry          Kind = "messages retry"
	Republish      Kind = "messages retry --republish"
	Discard        Kind = "messages discard"
	CheckpointSet  Kind = "checkpoint set"
	Pause          Kind = "pause"
	Resume         Kind = "resume"
	Sweep          Kind = "sweep"
	DeleteLease    Kind = "lease rows deleted"
	ChangeTables   Kind = "table list of a relay changed"
	SetClaimTime   Kind = "claim times set by hand"
	SetDueTime     Kind = "due times set by hand"
	SetStatus      Kind = "statuses set by hand"
	DeleteRows     Kind = "rows deleted"
	DeleteWaiting  Kind = "waiting rows deleted"
	DeleteKey      Kind = "rows of a key deleted"
	Truncate       Kind = "table truncated"
	AlterTable     Kind = "table altered"
	AddPoison      Kind = "rows that no broker accepts"
	AddUnwritable  Kind = "rows that the table refuses to change"
	AddDelayed     Kind = "delayed rows"
	AddLargeCommit Kind = "a large transaction"
)

// The faults. Those with a length end some steps later.
const (
	KillRelay     Kind = "kill -9 of a relay"
	StopRelay     Kind = "stop of a relay"
	FreezeRelay   Kind = "SIGSTOP of a relay"
	CutDatabase   Kind = "connections cut"
	HoleDatabase  Kind = "network swallows"
	SlowDatabase  Kind = "network slow"
	Refuse        Kind = "database refuses connections"
	KillSessions  Kind = "KILL of the relays' sessions"
	Purge         Kind = "logs purged"
	PurgeUnread   Kind = "logs purged while no relay runs"
	RestartServer Kind = "restart of the database server"
	ReadOnly      Kind = "database read-only"
	LockRows      Kind = "rows locked by the application"
	BrokerAway    Kind = "broker away"
	BrokerSilent  Kind = "broker swallows"
	LoseReplies   Kind = "broker's replies lost"
	BrokerBusy    Kind = "broker busy"
	RefuseKeys    Kind = "broker refuses a partition"
)

// weights are the frequencies of the kinds.
var weights = []struct {
	kind   Kind
	weight int
}{
	{Retry, 5},
	{Republish, 3},
	{Discard, 4},
	{CheckpointSet, 4},
	{Pause, 2},
	{Resume, 3},
	{Sweep, 2},
	{DeleteLease, 4},
	{ChangeTables, 4},
	{SetClaimTime, 4},
	{SetDueTime, 4},
	{SetStatus, 6},
	{DeleteRows, 4},
	{DeleteWaiting, 3},
	{DeleteKey, 3},
	{Truncate, 1},
	{AlterTable, 5},
	{AddPoison, 3},
	{AddUnwritable, 2},
	{AddDelayed, 3},
	{AddLargeCommit, 2},
	{KillRelay, 6},
	{StopRelay, 3},
	{FreezeRelay, 5},
	{CutDatabase, 4},
	{HoleDatabase, 5},
	{SlowDatabase, 2},
	{Refuse, 3},
	{KillSessions, 3},
	{Purge, 2},
	{PurgeUnread, 2},
	{RestartServer, 1},
	{ReadOnly, 2},
	{LockRows, 4},
	{BrokerAway, 3},
	{BrokerSilent, 3},
	{LoseReplies, 3},
	{BrokerBusy, 2},
	{RefuseKeys, 5},
}

// Step is one entry of a plan.
type Step struct {
	Kind   Kind
	Relay  int    // of the possible ones
	Table  int    // the same
	Length int    // steps until a fault ends
	Rest   int    // milliseconds after it
	Dice   uint64 // for its other choices
}

// Plan returns the steps of a seed.
func Plan(seed uint64, steps, relays, tables int) []Step {
	r := rand.New(rand.NewPCG(seed, 2))
	total := 0
	for _, w := range weights {
		total += w.weight
	}
	plan := make([]Step, steps)
	for i := range plan {
		n := r.IntN(total)
		for _, w := range weights {
			if n -= w.weight; n < 0 {
				plan[i].Kind = w.kind
				break
			}
		}
		plan[i].Relay, plan[i].Table, plan[i].Length = r.IntN(relays), r.IntN(tables), 1+r.IntN(6)
		plan[i].Rest, plan[i].Dice = 50+r.IntN(1200), r.Uint64()
	}
	return plan
}
