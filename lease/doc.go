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
// A row of the lease table is one acquisition: its number (the epoch, the primary key), who holds it, the names of the tables it is
// for, when it ends by the database's clock, and the position to resume from. What identifies the work are the names of the tables,
// not a state directory, a host or a configuration: relays of different tables share nothing and never wait for each other, and relays
// whose tables overlap are never active together. A table's name is in one row at most.
//
//   - Who acquires reads all rows and then, in one transaction, moves the counter of epochs on from the number that it read, takes out
//     the rows that share a table with it, and inserts its own. Of two that try at once the second one finds the counter moved; that is
//     so where a cluster certifies commits, too. Each row is taken out on condition that it was not renewed since it was read. Without
//     the counter an acquisition that was held up on its way could use the number of a row that has come and gone meanwhile.
//   - Before it acquires, a process makes the position and the pause of the last holder its own, durably. If it dies right after it has
//     acquired, its next start finds a row of its own directory, and what belongs to it.
//   - Who holds renews by the epoch, every third of the lease time, and writes its position and its pause along; the first time before it reads
//     anything. A renewal that finds no row tells that somebody else took over.
//   - A row may be taken when its holder released it; when it has ended by the database's clock and this process has watched it
//     unchanged for a lease time by its own clock; or when it was watched for two lease times. The watch is for a database's clock that
//     steps, and for a failover to a server with another clock: the holder stops by its own clock, whatever that of the database says.
//   - A state directory is locked by the process that uses it. So a process that finds a row of its own directory when it starts knows
//     that its holder is dead, and does not wait. That holds among the processes of one start of one machine: a volume that was taken
//     from a machine which is cut off, and is mounted by another one, brings no lock along. Then, and after a reboot, it waits.
//
// The holder counts from the moment before a renewal was sent, by the monotonic clock and by the wall clock (the former stands
// still while a machine sleeps), and stops a tenth of the lease time early. Grant.Valid is that test: one atomic load. It fences
// publishing and the sweep's claims, which would be in the way of who took over, and nothing else: status updates are conditional and say only what is true. What passes it and is held up for
// longer than the margin before it leaves the process, is sent late; sinks ask as near to the socket as they can. For Kafka that is the
// write itself. The RocketMQ client encodes and writes behind the question: of 40 stops (SIGSTOP) at full load, 4 let one request of
// some queues out on waking (test/crash TestFreezesInTheMiddleOfSendsToRocketMQ).
//
// The package owns no goroutine: Await and Keep are run by their caller. It decides nothing by comparing a clock of this machine
// with that of the database.
package lease
