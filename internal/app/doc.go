// Package app is the process: it reads a configuration, makes the parts of a relay and connects them, takes part in the lease, stands
// by, starts the relay again when the tables of a pattern change, and serves what an operator sees and does.
//
// Guarantee: nothing is opened for writing before the start's checks have passed, and what was opened is closed in the reverse order.
// Run owns the goroutines of its watches and of the admin server, and waits for all of them.
package app
