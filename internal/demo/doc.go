// Package demo is `make demo`: the whole task on one machine, with deliberate faults and a verified account at the end. It starts
// a private database and an embedded Kafka (or uses an external broker), runs business transactions against them and the relay as
// a separate process, kills the relay, takes the broker away, purges the binlog under the stopped relay, and then compares what
// the application committed with what a consumer received, row by row.
//
// Guarantee: Run returns nil only when nothing committed is missing, nothing was published that was not committed, every content
// is the committed one, every row is SENT and the purge was recorded as a gap. However Run ends, also by signals, the processes,
// directories and topics that it created are removed.
//
// Run owns all goroutines of the package (producers, consumer, progress, one that waits for the relay's process) and has waited
// for them when it returns.
package demo
