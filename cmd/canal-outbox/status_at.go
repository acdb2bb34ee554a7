package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// beforeAt and afterAt bound the range of time from which marks are shown.
const beforeAt, afterAt = 10 * time.Minute, time.Minute

// past is the measurement at a time, the JSON of status --at.
type past struct {
	At time.Time `json:"at"`
	// MeasuredAt is the time of the measurement; null when there is none within a minute.
	MeasuredAt *time.Time          `json:"measured_at"`
	Values     map[string]*float64 `json:"values"` // by the names of the series of /api/v1/history
	Marks      []operator.Mark     `json:"marks"`  // from ten minutes before until a minute after
}

// statusAt shows the past at a time, from the running relay or from the state directory alone.
func (c *cli) statusAt(ctx context.Context, text string) error {
	now := time.Now()
	at, err := operator.ParseTime(text)
	if ago, is := time.ParseDuration(text); is == nil {
		at, err = now.Add(-ago), nil
	}
	if err != nil {
		return err
	}
	if at.After(now) || at.Before(now.Add(-operator.SampleSpan)) {
		return operator.Usagef("--at must be within the last %v", operator.SampleSpan)
	}
	get := func(o operator.Service) (past, error) {
		t, err := o.Timeline(ctx, operator.Span{From: at.Add(-beforeAt), To: at.Add(afterAt), Step: operator.SampleStep})
		return pastAt(t, at), err
	}
	return answer(ctx, c, true, get, writePast)
}

// pastAt returns the measurement nearest to a time, at most a minute away.
func pastAt(t operator.Timeline, at time.Time) past {
	p := past{At: at.UTC().Truncate(time.Second), Values: map[string]*float64{}, Marks: t.Marks}
	best := afterAt + time.Second
	for i, second := range t.At {
		measured := time.Unix(second, 0).UTC()
		distance := measured.Sub(at).Abs()
		known := false
		for _, values := range t.Series {
			known = known || values[i] != nil
		}
		if !known || distance >= best {
			continue
		}
		best, p.MeasuredAt = distance, &measured
		for name, values := range t.Series {
			p.Values[name] = values[i]
		}
	}
	return p
}

func writePast(w io.Writer, p past) {
	line(w, "at\t%s", p.At.Format(time.RFC3339))
	if p.MeasuredAt == nil {
		line(w, "\tnothing was measured: this relay did not run, or stood by. The relay that was active then has it in its own state directory")
	} else {
		line(w, "measured\t%s", p.MeasuredAt.Format(time.RFC3339))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Values)) {
		text := "-"
		if v := p.Values[name]; v != nil {
			text = strconv.FormatFloat(*v, 'f', -1, 64)
		}
		line(w, "%s\t%s", strings.ReplaceAll(name, "_", " "), text)
	}
	for _, m := range p.Marks {
		line(w, "%s\t%s", m.At.UTC().Format(time.RFC3339), m.Text)
	}
}
