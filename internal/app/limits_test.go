package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
)

// What the configuration sets goes before the preset, what it leaves out is the preset's, and a table goes before the rest.
func TestG20_ConfigurationGoesBeforeThePreset(t *testing.T) {
	cfg := config.Default()
	cfg.Tables = []config.Table{
		{Name: "shop.a", Preset: "order-chain"},
		{Name: "shop.b", Preset: "order-chain", Attempts: "retries", Retry: config.TableRetry{Max: 3}},
		{Name: "shop.c", Preset: "t_local_message", Attempts: "sends"},
	}
	rules := func() [3]string {
		t.Helper()
		all, err := mappings(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		var out [3]string
		for i, m := range all {
			unit := "retries"
			if m.Retry.Sends {
				unit = "sends"
			}
			out[i] = fmt.Sprint(m.Retry.Max, " ", unit, " ", m.Retry.Backoff.Delay(0, 0.5))
		}
		return out
	}
	if got, want := rules(), [3]string{"5 sends 2s", "3 retries 2s", "5 sends 1s"}; got != want {
		t.Errorf("by the presets: %q, want %q", got, want)
	}
	cfg.Retry.Max, cfg.Retry.Schedule, cfg.Retry.Jitter = 7, []time.Duration{time.Minute}, 0
	if got, want := rules(), [3]string{"7 sends 1m0s", "3 retries 1m0s", "7 sends 1m0s"}; got != want {
		t.Errorf("by the configuration: %q, want %q", got, want)
	}
	all, err := mappings(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := all[0].Retry.Backoff.Delay(0, 0); got != time.Minute {
		t.Errorf("without jitter a minute is %v", got)
	}
}
