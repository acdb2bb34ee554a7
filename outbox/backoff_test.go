package outbox

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const middle = 0.5 // the random number that leaves the nominal step as it is

func TestBackoffSteps(t *testing.T) {
	schedule := []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}
	for _, c := range []struct {
		name string
		b    Backoff
		n    int
		want time.Duration
	}{
		{"first", Backoff{Base: time.Second, Max: time.Hour}, 0, time.Second},
		{"doubled", Backoff{Base: time.Second, Max: time.Hour}, 3, 8 * time.Second},
		{"capped", Backoff{Base: time.Second, Max: 10 * time.Second}, 4, 10 * time.Second},
		{"base above the cap", Backoff{Base: time.Minute, Max: time.Second}, 0, time.Second},
		{"many failures", Backoff{Base: time.Second, Max: time.Hour}, 1 << 30, time.Hour},
		{"negative", Backoff{Base: time.Second, Max: time.Hour}, -1, time.Second},
		{"zero value, first", Backoff{}, 0, time.Second},
		{"zero value, many", Backoff{}, 1000, 2 * time.Hour},
		{"schedule", Backoff{Base: time.Second, Schedule: schedule}, 1, 5 * time.Minute},
		{"behind the schedule", Backoff{Schedule: schedule}, 7, 30 * time.Minute},
		{"largest possible cap", Backoff{Base: 1, Max: 1<<63 - 1}, 62, 1 << 62},
	} {
		if got := c.b.step(max(c.n, 0)); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if got := c.b.Delay(c.n, middle); c.want < time.Hour*24 && got != c.want {
			t.Errorf("%s: the middle of the jitter is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestD17_BackoffIsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{Base: time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "base")), Max: time.Hour}
		n := rapid.IntRange(0, 100).Draw(t, "n")
		early, late := b.Delay(n, 0), b.Delay(n, 0.999)
		if step := b.step(n); early < step*4/5-1 || late > step*6/5 || (step > 10 && early >= late) {
			t.Fatalf("step %v is spread from %v to %v", step, early, late)
		}
		if n > 0 && b.step(n) < b.step(n-1) {
			t.Fatal("a later failure waits for less")
		}
	})
}
