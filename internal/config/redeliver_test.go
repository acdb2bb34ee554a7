package config

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

const consumers = `
source: {address: "127.0.0.1", user: u}
tables: [{name: shop.t, preset: PRESET, MORE}]
sink: {stdout: {}}
checkpoint: {dir: /tmp/x}
`

// When SENT rows are sent again: the defaults, and invalid values, which are refused with their place.
func TestRedeliver(t *testing.T) {
	text := func(preset, more string) string {
		return strings.NewReplacer("PRESET", preset, "MORE", more).Replace(consumers)
	}
	cfg := parse(t, text("local_message_table", `redeliver: {after: 10m, state_query: "https://h.example/T0KEN"}`))
	want := table.Redeliver{After: 10 * time.Minute, Until: "consumed", Max: 3, Query: "https://h.example/T0KEN"}
	if got := cfg.Tables[0].Redeliver.Rule(); got != want {
		t.Errorf("%+v", got)
	}
	if printed, err := cfg.Print(); err != nil || strings.Contains(string(printed), "T0KEN") {
		t.Errorf("%v: %s", err, printed)
	}
	parse(t, text("t_local_message", `codes: {done: 4}, redeliver: {after: 10m, until: done, max: 1}`))
	for more, want := range map[string]string{
		`redeliver: {after: 0s, max: 3}`:                                "tables[0].redeliver.after",
		`redeliver: {after: -1m}`:                                       "tables[0].redeliver.after",
		`redeliver: {until: consumed}`:                                  "tables[0].redeliver.after",
		`redeliver: {after: 10m, max: -1}`:                              "tables[0].redeliver.max",
		`redeliver: {after: 10m, until: finished}`:                      "this table has consumed",
		`redeliver: {after: 10m, until: sent}`:                          "this table has consumed",
		`redeliver: {after: 10m}, codes: {consumed: ""}`:                "this table has none",
		`redeliver: {after: 10m, state_query: "ftp://h.example/T0KEN"}`: "tables[0].redeliver.state_query",
		`redeliver: {after: 10m, state_query: "h.example/T0KEN"}`:       "tables[0].redeliver.state_query",
		`redeliver: {after: 10m, often: 3}`:                             "tables[0].redeliver.often",
	} {
		got := faults(t, text("local_message_table", more))
		if len(got) != 1 || !strings.Contains(got[0].String(), want) || strings.Contains(got[0].String(), "T0KEN") {
			t.Errorf("%s: %v", more, got)
		}
	}
	if got := faults(t, text("local_message_table", "redeliver: {after: 48h}")+"retention: {sent: 48h}\n"); len(got) != 1 || !strings.Contains(got[0].String(), "no row would go out again") {
		t.Errorf("%v", got)
	}
}
