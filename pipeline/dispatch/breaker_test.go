package dispatch

import (
	"testing"
	"time"
)

func TestBreakerOpensOnFailuresWithoutAnAnswerBetween(t *testing.T) {
	now := time.Now()
	var b breaker
	for range openAfter - 1 {
		b.failed(now)
	}
	b.answered()
	for i := range openAfter {
		if opened := b.failed(now); opened != (i == openAfter-1) {
			t.Fatalf("failure %d: opened %v", i+1, opened)
		}
	}
	if b.state != breakerOpen {
		t.Fatal("not open")
	}
}

func TestBreakerProbesWithGrowingPauses(t *testing.T) {
	now := time.Now()
	var b breaker
	b.open(now)
	last := time.Duration(0)
	for range 10 {
		now = b.probeAt
		b.probed(false, now)
		if wait := b.probeAt.Sub(now); wait < last || wait > probePauses.Max {
			t.Fatalf("waits %v after %v", wait, last)
		} else {
			last = wait
		}
	}
	b.probed(true, now)
	if b.state != breakerHalfOpen {
		t.Fatal("a successful probe leads to half-open")
	}
	if b.failed(now) || b.state != breakerOpen {
		t.Fatal("a failed trial opens it again, without a second announcement")
	}
	b.probed(true, now)
	if !b.answered() || b.state != breakerClosed {
		t.Fatal("an answered trial closes it")
	}
}
