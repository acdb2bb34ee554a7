package soak

import (
	"testing"
	"time"
)

// The same seed gives the same faults, another seed others, and every kind occurs.
func TestPlanFollowsFromTheSeed(t *testing.T) {
	kinds := []Kind{KillRelay, HoleDatabase, StopBroker, FreezeRelay, LoseReplies}
	first, again, other := NewPlan(7, longPace, kinds...), NewPlan(7, longPace, kinds...), NewPlan(8, longPace, kinds...)
	seen, different := map[Kind]int{}, false
	for range 100 {
		f := first.Next()
		if f != again.Next() {
			t.Fatal("the same seed gives two plans")
		}
		different = different || f != other.Next()
		seen[f.Kind]++
		if f.Pause < 5*time.Second || f.Pause > 20*time.Second || f.Length < longPace.MinLength || f.Length > longPace.MaxLength {
			t.Fatalf("%v", f)
		}
	}
	for _, k := range kinds {
		if seen[k] != 20 {
			t.Errorf("%s came %d times of 100", k, seen[k])
		}
	}
	if !different {
		t.Error("two seeds give one plan")
	}
}
