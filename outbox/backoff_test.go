package outbox

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const middle = 0.5 // the random number that does not change the nominal step

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

// The code of layout E fails at the fifth send, that of layout C at the fifth retry, which is the sixth send.
func TestG20_LimitCountsSendsOrRetries(t *testing.T) {
	sends := func(r Retry) (n int) {
		for n = 1; !r.Spent(n); n++ {
		}
		return n
	}
	for _, c := range []struct {
		rule Retry
		want int
	}{{Retry{Max: 5, Sends: true}, 5}, {Retry{Max: 5}, 6}, {Retry{Sends: true}, 1}, {Retry{}, 1}} {
		if got := sends(c.rule); got != c.want {
			t.Errorf("%+v: %d sends, want %d", c.rule, got, c.want)
		}
	}
}

func TestG20_JitterCanBeTurnedOff(t *testing.T) {
	half := Retry{Backoff: Backoff{Spread: -1}}.Override(Retry{Backoff: Backoff{Schedule: []time.Duration{30 * time.Minute}}})
	for _, random := range []float64{0, 0.3, 0.999} {
		if got := half.Backoff.Delay(0, random); got != 30*time.Minute {
			t.Errorf("30 minutes are %v", got)
		}
	}
	if got := (Backoff{Base: time.Second, Spread: 0.5}).Delay(0, 0); got != 500*time.Millisecond {
		t.Errorf("half of it: %v", got)
	}
}

// Fields that are set override, the others are kept.
func TestG20_RetryOverrides(t *testing.T) {
	preset := Retry{Max: 10, Sends: true, Backoff: Backoff{Schedule: []time.Duration{time.Minute}, Spread: 0.1}}
	got := preset.Override(Retry{Backoff: Backoff{Base: time.Second}})
	if got.Max != 10 || !got.Sends || got.Backoff.Schedule != nil || got.Backoff.Base != time.Second || got.Backoff.Spread != 0.1 {
		t.Errorf("a base replaces the schedule only: %+v", got)
	}
	if got := preset.Override(Retry{Max: 3}); got.Max != 3 || got.Backoff.Schedule == nil {
		t.Errorf("%+v", got)
	}
}
