// Package app puts the stations together: it builds them from a configuration, starts and stops them in order, answers for
// gaps and changes of the source, and serves the operator's commands. It is the one place that knows everything.
//
// Guarantee: nothing is published, written or swept before the source's identity was checked; a stop drains in the order
// reader and sweep, pipeline, sink, ack, store, so that a clean stop leaves nothing to repeat. Relay.Run owns one
// goroutine for each station and waits for all of them.
package app
