package config

import (
	"strings"
	"testing"
	"time"
)

// How often FAILED rows are tried again: for all tables, and for one; invalid values are refused.
func TestFailedEvery(t *testing.T) {
	cfg := parse(t, minimal+"\nretry: {failed_every: 6h}\n")
	if cfg.Retry.FailedEvery != 6*time.Hour || cfg.Tables[0].Retry.FailedEvery != 0 {
		t.Errorf("%+v", cfg.Retry)
	}
	for more, want := range map[string]string{
		"retry: {failed_every: 0.5s}":                          "retry.failed_every",
		"retry: {failed_every: -1h}":                           "retry.failed_every",
		"retry: {failed_every: 1000h}":                         "retry.failed_every",
		"retry: {topics: {orders: {failed_every: 1h}}}":        "retry.topics.orders.failed_every",
		"retry: {types: {refund: {failed_every: 1h}}}":         "retry.types.refund.failed_every",
		"retry: {failed_every: 48h}\nretention: {failed: 48h}": "would leave the table before they are tried again",
	} {
		got := faults(t, minimal+"\n"+more+"\n")
		if len(got) != 1 || !strings.Contains(got[0].String(), want) {
			t.Errorf("%s: %v", more, got)
		}
	}
}
