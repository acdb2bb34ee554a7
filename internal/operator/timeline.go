package operator

import "time"

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

// Mark is something that happened to the relay at a time.
type Mark struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // start, gap, checkpoint, failover, breaker, binlog, topics, lease, table
	Text string    `json:"text"`
}

// Span asks for a part of the past.
type Span struct {
	From time.Time     // the oldest time
	To   time.Time     // the newest one
	Step time.Duration // several samples become one value
}

const (
	// SampleStep is how far apart the measurements of the past lie, and the smallest step that can be asked for.
	SampleStep = 10 * time.Second
	// SampleSpan is how far back they go.
	SampleSpan = 24 * time.Hour
)
