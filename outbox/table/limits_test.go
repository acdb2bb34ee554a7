package table

import (
	"testing"
	"time"
)

// A preset counts a limit and waits as the code of the layout's owners does (docs/layouts).
func TestG20_PresetsCountAndWaitAsTheirOwners(t *testing.T) {
	for preset, want := range map[string]struct {
		max    int
		sends  bool
		first  time.Duration
		second time.Duration
		last   time.Duration
	}{
		"outbox":              {5, false, time.Second, 2 * time.Second, 2 * time.Hour},
		"t_local_message":     {5, false, time.Second, 2 * time.Second, 2 * time.Hour},
		"message-state":       {10, true, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		"local_message_table": {5, false, time.Minute, 5 * time.Minute, 2 * time.Hour},
		"local_message":       {5, false, time.Second, 2 * time.Second, 2 * time.Hour},
		"order-chain":         {5, true, 2 * time.Second, 4 * time.Second, 2 * time.Hour},
		"debezium-outbox":     {5, false, time.Second, 2 * time.Second, 2 * time.Hour},
	} {
		m, err := Preset(preset)
		if err != nil {
			t.Fatal(err)
		}
		r := m.Retry
		wait := func(n int) time.Duration { return r.Backoff.Delay(n, 0.5) }
		if r.Max != want.max || r.Sends != want.sends || wait(0) != want.first || wait(1) != want.second || wait(99) != want.last {
			t.Errorf("%s: %+v", preset, r)
		}
	}
}
