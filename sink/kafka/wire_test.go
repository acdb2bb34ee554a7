package kafka

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A stop while no broker can be reached says of each message that it was not sent, and takes no longer than it was given.
func TestG47_CloseWithAnUnreachableBroker(t *testing.T) {
	s := newSink(t, "127.0.0.1:1", func(c *config) { c.times = patient })
	all, in := messages("orders", 100), newInbox(t)
	s.Send(append([]*outbox.Message(nil), all...), in.done)
	closeSilent(t, s)
	wantClass(t, outbox.ClassOutage, in.have(all)...)
}

// A message counts as sent from the time at which a produce request may be written, and none is written after the cut.
func TestG47_TheWireKnowsWhatWasNeverSent(t *testing.T) {
	var w wire
	first := w.sends.Add(1)
	if !w.produce() {
		t.Error("a request is held back before the cut")
	}
	second := w.sends.Add(1)
	if w.never(second) {
		t.Error("a message that may still be written counts as not sent")
	}
	w.cut.Store(true)
	if w.never(first) || !w.never(second) {
		t.Error("after the cut the first was written and the second was not")
	}
	if w.produce() || w.never(second) {
		t.Error("a request is written after the cut, or a message is called unsent after an attempt to write it")
	}
}
