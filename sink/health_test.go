package sink

import (
	"errors"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// In an outage of all parts no part counts as silent, neither at its start nor at its end.
func TestHealthInAnOutageOfAll(t *testing.T) {
	h, now := NewHealth(100), time.Now()
	parts := []*Part{h.Part("0"), h.Part("1"), h.Part("2")}
	send := func(i int) *Part {
		if !parts[i].Enter(now) {
			t.Fatalf("part %d is called silent", i)
		}
		return parts[i]
	}
	for range 100 {
		for i := range 3 {
			send(i).Leave(outbox.ClassNone, now)
		}
		now = now.Add(100 * time.Millisecond)
	}
	var waiting []*Part
	for range 90 { // more than half the room
		for i := range 3 {
			waiting = append(waiting, send(i))
		}
		now = now.Add(100 * time.Millisecond)
	}
	for i, one := range waiting {
		if one.Leave(outbox.ClassOutage, now) {
			t.Fatal("an outage of all parts is reported as that of one")
		}
		waiting[i] = send(i % 3)
	}
	for i := range waiting {
		waiting[(i*7)%len(waiting)].Leave(outbox.ClassNone, now) // 7 and 270 have no common divisor
		send(i % 3)
		now = now.Add(time.Millisecond)
	}
}

// B13: a part that fails while others work is detected, gets a trial at intervals, and is back with its first success.
func TestB13_PartAwayAndBack(t *testing.T) {
	h, now := NewHealth(100), time.Now()
	dead, other := h.Part("dead"), h.Part("other")
	dead.Enter(now)
	for range 60 {
		other.Enter(now)
		now = now.Add(100 * time.Millisecond)
		other.Leave(outbox.ClassNone, now)
	}
	if dead.Enter(now) {
		t.Fatal("a part that has been silent for 6 s is not called so")
	}
	if !dead.Leave(outbox.ClassOutage, now) {
		t.Fatal("its failure is not reported as its own")
	}
	if dead.Enter(now) {
		t.Fatal("a trial at once")
	}
	now = now.Add(trialPause)
	if trial, second := dead.Enter(now), dead.Enter(now); !trial || second {
		t.Fatalf("trial %v, a second one at the same time %v", trial, second)
	}
	dead.Leave(outbox.ClassNone, now)
	if !dead.Enter(now) {
		t.Fatal("not back after a success")
	}
}

// The scope of a lost part is the cluster when no other part works.
func TestHealthScope(t *testing.T) {
	h, why := NewHealth(0), errors.New("refused")
	a := h.Part("a")
	if a.Scope() != outbox.ScopeCluster {
		t.Error("the only part there is")
	}
	b := h.Part("b")
	if h.Part("a") != a || a.Scope() != outbox.ScopePartition {
		t.Error("one of two")
	}
	if !b.Lost(why) || b.Lost(why) || !errors.Is(b.Away(), why) || a.Scope() != outbox.ScopeCluster || b.Scope() != outbox.ScopePartition {
		t.Errorf("b lost: away %v, scopes %s and %s", b.Away(), a.Scope(), b.Scope())
	}
	if !b.Back() || b.Back() || b.Away() != nil || a.Scope() != outbox.ScopePartition {
		t.Error("b is back")
	}
	sent := time.Now()
	if a.AnsweredSince(sent) {
		t.Error("a has answered nothing")
	}
	if a.Answered(sent.Add(time.Millisecond)); !a.AnsweredSince(sent) || b.AnsweredSince(sent) {
		t.Error("a has answered, b has not")
	}
}
