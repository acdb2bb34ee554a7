// Package lease lets one of several relays publish the rows of a table while the others stand by.
//
// # Guarantee
//
// Of the relays that share a lease table and a table of rows, at most one has a valid Grant at any moment, whatever crashes, is
// stopped or loses its network, as long as the clocks of the machines run at about the same speed. When the holder ends in order its
// place is taken at once; when it dies, within two lease times. The holder's position goes with the lease, and an operator's pause.
//
// # Design
//
// A row of the lease table is one acquisition: its number (the term, the primary key; the column is named epoch), its holder, the names of
// the tables it is for, when it ends by the database's clock, and the position to resume from. What identifies the work are the names of
// the tables, not a state directory, a host or a configuration: relays of different tables share nothing and never wait for each other, and
// relays whose tables overlap are never active together. A table's name is in one row at most.
//
// Package protocol makes every decision, without a clock, a database or a goroutine; its test explores every interleaving. This package
// asks the database, and runs the statements. Package leasetest is the table in memory, for all tests.
//
//   - A relay that acquires reads all rows and then, in one transaction, moves the counter of terms on from the number that it read, takes out
//     the rows that share a table with it, and inserts its own. Of two that try at once the second one finds the counter moved; that is
//     so where a cluster certifies commits, too. Each row is taken out on condition that it was not renewed since it was read.
//   - Every statement that writes names what its relay believes: the server, the counter with its birth, the term, the process and the tables. A
//     row that another relay has taken from in part, or made again under the same term, matches no renewal and no release.
//   - Before it acquires, a process makes the position and the pause of the last holder its own, durably. If it dies right after it has
//     acquired, its next start finds a row of its own directory, and what belongs to it.
//   - The holder renews every third of the lease time, and writes its position and its pause along; the first time before it reads
//     anything. A renewal that matches no row is followed by a look: after a failover of the database a lease that is still valid moves along.
//   - A row may be taken when its holder released it; when it has ended by the database's clock and this process has watched it
//     unchanged for the holder's lease time by its own clock; or when it was watched for two lease times. The lease time is part of the name of
//     the holder's process. The watch is for a database's clock that steps, and for a failover to a server with another clock.
//   - What a table or a server no longer shows is waited for, too: without a counter, with another one or one that went back, on a server that
//     is new to this process and to the row, for a table whose row is gone, and for a table that never had one when the process has just
//     started, the relay waits as long as a lost holder may believe in its lease.
//   - A state directory is locked by the process that uses it. So a process that finds a row of its own directory when it starts can rely on
//     it that the holder is dead, and does not wait. That holds among the processes of one start of one machine: a volume that was taken
//     from a machine which is cut off, and is mounted by another one, brings no lock along. Then, and after a reboot, it waits.
//
// The holder counts from the moment before a renewal was sent, by the monotonic clock and by the wall clock (the former stands
// still while a machine sleeps), and stops a tenth of the lease time early. Grant.Valid is that test: one atomic load. It fences
// publishing and the sweep's claims, which would be in the way of the new holder, and nothing else: status updates are conditional and say only what is true. What passes it and is held up for
// longer than the margin before it leaves the process, is sent late; sinks ask as near to the socket as they can. For Kafka that is the
// write itself. The RocketMQ client encodes and writes behind the question: of 40 stops (SIGSTOP) at full load, 4 let one request of
// some queues out on waking (test/crash TestFreezesInTheMiddleOfSendsToRocketMQ).
//
// The package owns no goroutine: Await and Keep are run by their caller. It decides nothing by comparing a clock of this machine
// with that of the database.
package lease
