// Package adversary simulates an operator who does anything at any time, during faults: two relays with a lease, tables with
// `ordering: key`, a real database server. A run is a bounded number of steps from one seed; the choice of rows depends on the
// rows that exist at that time, so a seed repeats the plan and not every row.
//
// Guarantees: at the end of a run every row is accounted for: P1 to P5 and P8 hold for rows that no operator touched, and for
// touched rows as far as the command keeps a promise (see touch).
//
// Goroutines: the application's writers, which stop with the run.
package adversary

import (
	"math/rand/v2"

	"github.com/canal-outbox/canal-outbox/test/soak"
)

// kind is what a step does: a command of an operator, a manual change of the tables, or a fault. A fault with a length ends some
// steps later.
type kind struct {
	name   string
	weight int // its frequency
	do     deed
}

// deed does a step; r is for its choices.
type deed func(w *world, s Step, r *rand.Rand)

var kinds = []kind{
	{"messages retry", 5, retry(false)},
	{"messages retry --republish", 3, retry(true)},
	{"messages discard", 4, discard},
	{"checkpoint set", 4, checkpointSet},
	{"pause", 2, pause},
	{"resume", 3, resume},
	{"sweep", 2, sweep},
	{"lease rows deleted", 4, deleteLease},
	{"table list of a relay changed", 4, changeTables},
	{"claim times set by hand", 4, setTime("last_exec_time", "NOW(3)")},
	{"due times set by hand", 4, setTime("next_retry_time", "NOW(3) + INTERVAL 4 SECOND")},
	{"statuses set by hand", 6, setStatus},
	{"rows deleted", 4, deleteRows((*world).some)},
	{"waiting rows deleted", 3, deleteRows(waiting)},
	{"rows of a key deleted", 3, deleteRows(ofKey)},
	{"table truncated", 1, truncate},
	{"table altered", 5, alterTable},
	{"rows that no broker accepts", 3, addRows(poison)},
	{"rows that the table refuses to change", 2, addRows(unwritable)},
	{"delayed rows", 3, addRows(delayed)},
	{"a large transaction", 2, addLargeCommit},

	{"kill -9 of a relay", 6, endRelay(func(w *world, i int) { w.relays[i].Kill() })},
	{"stop of a relay", 3, endRelay((*world).stop)},
	{"SIGSTOP of a relay", 5, freeze},
	{"connections cut", 4, cut},
	{"network swallows", 5, network(soak.HoleDatabase)},
	{"network slow", 2, network(soak.SlowDatabase)},
	{"database refuses connections", 3, network(soak.RefuseDatabase)},
	{"KILL of the relays' sessions", 3, killSessions},
	{"logs purged", 2, purge},
	{"logs purged while no relay runs", 2, purgeUnread},
	{"restart of the database server", 1, restartServer},
	{"database read-only", 2, readOnly},
	{"rows locked by the application", 4, lockRows},
	{"broker away", 3, brokerFault(soak.StopBroker)},
	{"broker swallows", 3, brokerFault(soak.FreezeBroker)},
	{"broker's replies lost", 3, brokerFault(soak.LoseReplies)},
	{"broker busy", 2, brokerFault(soak.RefuseMessages)},
	{"broker refuses a partition", 5, refuseKeys},
}

// Step is one entry of a plan.
type Step struct {
	*kind
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
	for _, k := range kinds {
		total += k.weight
	}
	plan := make([]Step, steps)
	for i := range plan {
		n := r.IntN(total)
		for k := range kinds {
			if n -= kinds[k].weight; n < 0 {
				plan[i].kind = &kinds[k]
				break
			}
		}
		plan[i].Relay, plan[i].Table, plan[i].Length = r.IntN(relays), r.IntN(tables), 1+r.IntN(6)
		plan[i].Rest, plan[i].Dice = 50+r.IntN(1200), r.Uint64()
	}
	return plan
}
