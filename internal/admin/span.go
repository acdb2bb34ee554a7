package admin

import (
	"net/http"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

const (
	defaultSpan = time.Hour
	fewSteps    = 360 // what a chart can show; the step is chosen by it when none is named
)

// parseSpan reads from and to, each a time in RFC 3339 or how long ago (1h), and step, a duration.
func parseSpan(r *http.Request, now time.Time) (operator.Span, error) {
	s := operator.Span{From: now.Add(-defaultSpan), To: now}
	for name, at := range map[string]*time.Time{"from": &s.From, "to": &s.To} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		ago, err := time.ParseDuration(text)
		if err == nil {
			*at = now.Add(-ago)
		} else if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return s, operator.Usagef("%s %q is neither a time (2026-01-02T15:04:05Z) nor how long ago (1h)", name, text)
		}
	}
	if s.From.After(now) {
		return s, operator.Usagef("from must not be in the future")
	}
	if s.To.Before(s.From) {
		return s, operator.Usagef("to must not be before from")
	}
	if oldest := now.Add(-operator.SampleSpan); s.From.Before(oldest) {
		s.From = oldest
	}
	s.Step = s.To.Sub(s.From) / fewSteps
	if text := r.URL.Query().Get("step"); text != "" {
		var err error
		if s.Step, err = time.ParseDuration(text); err != nil || s.Step < operator.SampleStep || s.Step > operator.SampleSpan {
			return s, operator.Usagef("step must be a duration from %v to %v", operator.SampleStep, operator.SampleSpan)
		}
	}
	s.Step = max(operator.SampleStep, (s.Step+operator.SampleStep-1)/operator.SampleStep*operator.SampleStep)
	return s, nil
}

func readSpan(r *http.Request) (operator.Span, error) { return parseSpan(r, time.Now()) }
