package outbox

import "time"

// Life is what a process leaves about its own time, for a read-back after a kill.
type Life struct {
	AliveAt   time.Time `json:"alive_at"`   // the last sign of life
	SettledAt time.Time `json:"settled_at"` // the journal has what was sent before, but not all that sweeps have sent
	ClaimsAt  time.Time `json:"claims_at"`  // the same of sweeps, whose rows stay claimed for a while when their process is killed; not after SettledAt
}
