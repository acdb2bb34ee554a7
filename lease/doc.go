// Package lease lets one of several relays publish the rows of a table while the others stand by.
//
// # Guarantee
//
// Of the relays that share a lease table and a table of rows, at most one has a valid Grant at any time, whatever crashes, is
// stopped or loses its network, as long as the clocks of the machines run at about the same speed. When the holder stops in order
// another relay takes over at once; when it dies, within two lease times. The holder's position and an operator's pause are
// passed on with the lease.
//
// # Design
//
// A row of the lease table is one acquisition: its number (the term, the primary key; the column is named epoch), its holder, the
// names of its tables, its end by the database's clock, and the position to resume from. The names of the tables identify the
// work, not a state directory, a host or a configuration: relays of different tables share nothing and never wait for each other,
// and relays whose tables overlap are never active together. A table's name is in at most one row.
//
// Package protocol makes every decision, without a clock, a database or a goroutine; its test explores every interleaving. This
// package queries the database and runs the statements. Package leasetest is the table in memory, for all tests.
//
// - A relay that acquires reads all rows and then, in one transaction, increments the counter of terms from the number that it
// read, takes its tables out of other rows, and inserts its own row. Of two concurrent acquisitions the second one finds the
// counter moved, also where a cluster certifies commits. A table is taken out of a row only if that row was not renewed since it
// was read.
// - Every statement that writes names what its relay assumes: the server, the counter with its birth, the term, the process and
// the tables. A row that another relay has taken tables from, or recreated under the same term, matches no renewal and no
// release.
// - Before it acquires, a process stores the position and the pause of the last holder durably. If it dies right after it has
// acquired, its next start finds a row of its own directory, and the data for it.
// - The holder renews every third of the lease time, and writes its position and its pause with it; the first time before it
// reads anything. After a renewal that matches no row it reads the table: after a failover of the database a valid lease moves
// along.
// - A row may be taken when its holder released it; when it has ended by the database's clock and this process has watched it
// unchanged for the holder's lease time by its own clock; or when it was watched for two lease times. The lease time is part of
// the name of the holder's process. The watch protects against a database's clock that steps, and against a failover to a server
// with another clock.
// - A relay also waits for what a table or a server may have lost: without a counter, with another one or one that decreased, on
// a server that is new to this process and to the row, for a table whose row is gone, and for a table that never had one when the
// process has just started. It waits as long as a lost holder may consider its lease valid.
// - The process that uses a state directory locks it. So a process that finds a row of its own directory when it starts can conclude
// that the holder is dead, and does not wait. That is true among the processes of one start of one machine: a volume of a machine
// without network that is mounted by another one has no lock there. Then, and after a reboot, it waits.
//
// The holder counts from the time before a renewal was sent, by the monotonic clock and by the wall clock (the former stops while
// a machine sleeps), and stops a tenth of the lease time early. Grant.Valid is that test: one atomic load. It fences publishing
// and the sweep's claims, which would block the new holder, and nothing else: status updates are conditional and always true. A
// message that passes the test and is delayed longer than the margin before it leaves the process is sent late; sinks test as
// near to the socket as they can. For Kafka that is the write itself. The RocketMQ client encodes and writes after the test: of
// 40 stops (SIGSTOP) at full load, 4 sent one request of some queues when the process continued (test/crash
// TestFreezesInTheMiddleOfSendsToRocketMQ).
//
// The package owns no goroutine: callers run Await and Keep. It never compares a clock of this machine with that of the database.
package lease
