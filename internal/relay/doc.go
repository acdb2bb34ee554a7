// Package relay is one relay: built from its parts in one order, run, moved, paused, and stopped in the reverse order. It also answers for
// gaps and for changes of the source.
//
// Guarantee: nothing is published, written or swept before the source's identity was checked; a stop drains in the order
// reader and sweep, pipeline, sink, ack, so that a clean stop leaves nothing to repeat. Relay.Run owns one
// goroutine for each station and waits for all of them.
package relay
