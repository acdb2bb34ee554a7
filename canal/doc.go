// Package canal follows the binlog of one MySQL or MariaDB server and offers its transactions, in log order, with the rows that
// were inserted into the mapped tables.
//
// Guarantees: a transaction is offered only after its end was read in the log. Every transaction is offered, also those without
// rows of mapped tables, except in a gap, which is reported first. What cannot be read with certainty is offered as deferred,
// never guessed. A stream is opened only to the recorded server or one that holds its history. Positions are transaction ends.
//
// DESIGN.md lists the invariants and the race that each one prevents.
//
// Goroutines: Run works in the caller's goroutine. An open stream has one goroutine of the client library, which reads the log
// (the library up to the first event, then this package) and calls the Handler. A second goroutine checks the server's clock and,
// on MySQL, looks for a second reader with our server id. Run closes the socket and waits for both before it continues or
// returns.
package canal
