// Package demo is what `make demo` shows: the whole job on one machine, with faults on purpose and a verified account at the
// end. It starts a private database and an embedded Kafka (or uses a broker that is given), runs business transactions
// against them and the relay as a process of its own, kills the relay, takes the broker away, purges the binlog under the
// stopped relay, and then compares what the application committed with what a consumer received, row by row.
//
// Guarantee: Run returns nil only when nothing committed is missing, nothing was published that was not committed, every
// content is the committed one, every row is SENT and the purge was recorded as a gap. However Run ends, also by signals,
// the processes, directories and topics it made are gone.
//
// Run owns all goroutines of the package (producers, consumer, progress, one that waits for the relay's process) and
// has waited for them when it returns.
package demo
