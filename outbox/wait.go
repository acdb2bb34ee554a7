package outbox

import (
	"context"
	"time"
)

// Wait waits for a time, or until wake has a token or is closed; nil: nothing wakes it. It returns false when ctx ends first.
func Wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}
