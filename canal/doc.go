// Package canal follows the binlog of one MySQL or MariaDB server and offers its transactions, in log order, with the
// rows that were inserted into the mapped tables.
//
// Guarantees: a transaction is offered after its end was seen in the log and never before; every transaction is offered,
// those without rows of ours too, except across a gap, which is reported first. What cannot be read with certainty is
// offered as deferred, never guessed. A stream is opened only to a server that is the recorded one or holds its history.
// Positions are transaction ends.
//
// DESIGN.md gives the invariants and the race that each is for.
//
// Goroutines: Run works in the caller's goroutine. While a stream is open there is one goroutine of the client library: in it the
// log is read, by the library up to the first event and by us from there on, and the Handler is called. Run has one more that
// looks at the server's clock and, on MySQL, for a second reader with our server id. Run closes the socket and waits for both
// before it goes on or returns.
package canal
