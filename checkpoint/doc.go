// Package checkpoint keeps what must outlive the process in one Pebble store: whose log is read and up to where, the
// history of that position, which rows the broker has taken but MySQL has not written yet (the journal), and the gaps.
//
// Guarantee: when a writing method returns nil, all of its changes survive a crash of the process and of the machine, and
// after a crash each call is there whole or not at all. The checkpoint moves forward only, unless an operator or a gap
// moves it (Reset), and such a move stays in the history with its reason. A record that cannot be
// trusted is reported as *CorruptError, never returned. See DESIGN.md for the keyspace and the reasons. Peek reads a store
// without writing to it.
//
// Goroutines: none of its own. Pebble starts its background goroutines in Open and ends them in Close. Every method may be
// called from any goroutine; writers wait for each other.
package checkpoint
