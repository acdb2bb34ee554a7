package admin

import (
	"net/http"
	"time"
)

// Timeline is what was measured in the last day, and what happened meanwhile. It is the JSON contract of
// GET /api/v1/history: series are added, never renamed.
type Timeline struct {
	StepSeconds int `json:"step_seconds"`
	// At are the ends of the steps in Unix seconds, oldest first. Every series has a value for each; null where nothing was
	// measured.
	At     []int64               `json:"at"`
	Series map[string][]*float64 `json:"series"`
	Marks  []Mark                `json:"marks"` // oldest first
}

// Mark is something that happened to the relay at a moment.
type Mark struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // start, gap, checkpoint, failover, breaker, binlog, topics, lease, table
	Text string    `json:"text"`
}

// Span asks for a part of the past.
type Span struct {
	From time.Time     // the oldest moment
	To   time.Time     // the newest one
	Step time.Duration // several samples become one value
}

const (
	// SampleStep is how far apart the measurements of the past lie, and the smallest step that can be asked for.
	SampleStep = 10 * time.Second
	// SampleSpan is how far back they go.
	SampleSpan = 24 * time.Hour

	defaultSpan = time.Hour
	fewSteps    = 360 // what a chart can show; the step is chosen by it when none is named
)

// parseSpan reads from and to, each a time in RFC 3339 or how long ago (1h), and step, a duration.
func parseSpan(r *http.Request, now time.Time) (Span, error) {
	s := Span{From: now.Add(-defaultSpan), To: now}
	for name, at := range map[string]*time.Time{"from": &s.From, "to": &s.To} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		ago, err := time.ParseDuration(text)
		if err == nil {
			*at = now.Add(-ago)
		} else if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return s, Usagef("%s %q is neither a time (2026-01-02T15:04:05Z) nor how long ago (1h)", name, text)
		}
	}
	if s.From.After(now) {
		return s, Usagef("from must not be in the future")
	}
	if s.To.Before(s.From) {
		return s, Usagef("to must not be before from")
	}
	if oldest := now.Add(-SampleSpan); s.From.Before(oldest) {
		s.From = oldest
	}
	s.Step = s.To.Sub(s.From) / fewSteps
	if text := r.URL.Query().Get("step"); text != "" {
		var err error
		if s.Step, err = time.ParseDuration(text); err != nil || s.Step < SampleStep || s.Step > SampleSpan {
			return s, Usagef("step must be a duration from %v to %v", SampleStep, SampleSpan)
		}
	}
	s.Step = max(SampleStep, (s.Step+SampleStep-1)/SampleStep*SampleStep)
	return s, nil
}

func (a *api) timeline(r *http.Request) (any, error) {
	span, err := parseSpan(r, time.Now())
	if err != nil {
		return nil, err
	}
	return a.service().Timeline(r.Context(), span)
}
