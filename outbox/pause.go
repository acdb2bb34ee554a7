package outbox

import (
	"errors"
	"time"
)

// Pause reports that an operator has stopped the intake: no row is read from the log, and no sweep publishes.
type Pause struct {
	By     string    `json:"by"`     // who paused it: a user of the machine, or the role of a token
	Since  time.Time `json:"since"`  // by our clock
	Reason string    `json:"reason"` // in the operator's words; may be empty
}

// String completes the sentence "the relay is ...".
func (p Pause) String() string {
	text := "paused by " + p.By + " since " + p.Since.Format(time.RFC3339)
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// ErrPaused reports that an operator has stopped the intake: rows stay unchanged.
var ErrPaused = errors.New("the relay is paused")
