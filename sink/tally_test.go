package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A tally has a bounded number of topics, and counts every result in one of them.
func TestTallyIsBounded(t *testing.T) {
	var tally Tally
	now := time.Now()
	for i := range 2 * maxTallied {
		class := outbox.ClassNone
		if i%2 == 1 {
			class = outbox.ClassPermanent
		}
		tally.Count(&Result{Message: &outbox.Message{Topic: fmt.Sprint(i), Since: now.Add(time.Hour)}, Outcome: outbox.Outcome{Class: class}}, now)
	}
	sent, other := uint64(0), uint64(0)
	for _, one := range tally.Topics {
		sent, other = sent+one.Sent, other+one.Other
	}
	if len(tally.Topics) != maxTallied+1 || tally.Sent != maxTallied || sent != maxTallied || other != maxTallied {
		t.Errorf("%d topics, %d sent, %d others, tally %d", len(tally.Topics), sent, other, tally.Sent)
	}
	if tally.Latency[0] != maxTallied || tally.Seconds != 0 {
		t.Errorf("commits ahead of the clock: %v, %v s", tally.Latency, tally.Seconds)
	}
}
