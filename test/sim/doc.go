// Package sim runs the relay as it is assembled in internal/app, with the real pipeline, ack, fallback and checkpoint,
// against models of a database with its binlog, of a broker and of a disk, in virtual time. A number, the seed, decides
// everything that happens: which transactions commit, what the broker does to which message, which statement loses its
// reply, when the process is killed and what of its unsynced files survives.
//
// During each run the promises P1 to P5 are checked, and what they rest on: retry counts, statuses, what
// the journal holds, and that the checkpoint passes no row that is not settled and never goes backwards by itself. Some seeds have a
// table that keeps the order of its keys, a second table with a status, where other sessions may lock one of the two or both for a while, a table
// without a status, an application that publishes its rows itself, or rows that go out again: FAILED ones, and SENT ones that no consumer finishes.
// Three in ten send in transactions (sink.kafka.exactly_once): the real sink on a model of Kafka's coordinator, and a reader of committed
// records gets each row once.
//
// Seeds from 1,000,000,000,001 on run two or three processes with state directories of their own and a lease (internal/relay.HeldLease and
// the real lease), which are killed, stopped, frozen and cut off. At most one publishes, its copies are of rows that the table did not
// show as SENT when it took over, and another one takes over when it ends. Each range of 20 other seeds is followed by one of these.
//
// In addition, fleets of 16 sources run in one bubble, some with teams that fail and the others with seeds without failures:
// those others deliver the same messages at the same times as in a fleet without failures (TestSourcesDoNotFeelEachOther).
//
//	go test ./test/sim -sim.seeds=20000      that many seeds, on all processors: a process for each
//	go test ./test/sim -run Seeds -sim.first=20001 -sim.seeds=20000 -sim.processes=1    the next ones, on one processor
//	go test ./test/sim -sim.seed=4711 -v     one seed, with the trace of its events
//	SIM_TIME=10m go test ./test/sim          new seeds for that long
//	go test ./test/sim -run Mutations -sim.mutations -v    shows for each rule that the checks see it broken
//
// How exact a replay is: every decision is drawn from the seed, the actor and a count of what that actor did, by design no two
// actors of the model act at the same nanosecond, and a process uses one processor, so that goroutines of the relay that become
// runnable at the same instant run in the same order. What remains are crashes after which a part of the unsynced directory
// entries survives, drawn in the order of a map (one kill in nine). TestSameSeedSameTrace says how often that shows: in none or
// one of 200 seeds.
//
// Goroutines of the relay must not sleep while they hold a mutex that others wait for: virtual time would not move. A
// seed that hangs for that or any other reason ends the run with its number.
//
// The package has tests only. Each seed runs in a bubble of testing/synctest; its goroutines end with it.
package sim
