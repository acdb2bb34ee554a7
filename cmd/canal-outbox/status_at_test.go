package main

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// The measurement nearest to the time is used, at most a minute away; an empty one is not.
func TestStatusAtATime(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	lag, later := 2.5, 7.0
	timeline := operator.Timeline{
		At:     []int64{at.Unix() - 15, at.Unix() - 5, at.Unix() + 30},
		Series: map[string][]*float64{"lag_seconds": {&lag, nil, &later}},
		Marks:  []operator.Mark{{At: at.Add(-time.Minute), Kind: "table", Text: "shop.t was dropped"}},
	}
	p := pastAt(timeline, at)
	if p.MeasuredAt == nil || p.MeasuredAt.Unix() != at.Unix()-15 || *p.Values["lag_seconds"] != lag {
		t.Errorf("%+v", p)
	}
	var text strings.Builder
	writePast(&text, p)
	if got := text.String(); !strings.Contains(got, "lag seconds\t2.5") || !strings.Contains(got, "shop.t was dropped") {
		t.Errorf("got %s", got)
	}
	text.Reset()
	writePast(&text, pastAt(timeline, at.Add(5*time.Minute)))
	if got := text.String(); !strings.Contains(got, "nothing was measured") {
		t.Errorf("got %s", got)
	}
	file, _ := configure(t)
	for _, args := range [][]string{{"--at", "yesterday"}, {"--at", "48h"}, {"--at", "-1h"}, {"--at", "1h", "--watch"}} {
		if got := run("", append([]string{"status", "-c", file}, args...)...); got.code != exitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
