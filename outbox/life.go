package outbox

import "time"

// Life is what a process leaves about its own time, for a read-back after a kill.
type Life struct {
	AliveAt   time.Time `json:"alive_at"`   // the last sign of life
	SettledAt time.Time `json:"settled_at"` // the journal has what was sent before
}
