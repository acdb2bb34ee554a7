// Package relay runs the built binary against real servers for end-to-end tests and the demo: it builds it once, starts, kills and stops
// `canal-outbox run`, writes outbox rows like an application and remembers what was committed, reads back what the broker
// stored, and compares the two.
//
// Guarantees: a relay that Start returned reads the binlog; its process dies with the test (on Linux even when the test is
// killed) and its log is shown when the test failed. A Ledger holds exactly the rows whose commit the server confirmed, in
// commit order for each key, as long as one goroutine writes the rows of a key.
//
// Goroutines: each running process has one that waits for its end (package testkit).
package relay
