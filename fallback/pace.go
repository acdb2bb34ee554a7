package fallback

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// pageRows returns the number of rows in a page of a sweep: a batch, and at most what the rate allows for a second.
func (c *Config) pageRows() int {
	if c.Rate > 0 {
		return min(c.Batch, c.Rate)
	}
	return c.Batch
}

// pace waits until enough time has passed since began for the rate and the number of published rows. Nothing is reserved or
// claimed meanwhile.
func (s *Sweeper) pace(ctx context.Context, began time.Time, rows int) error {
	if s.cfg.Rate <= 0 || rows == 0 {
		return nil
	}
	outbox.Wait(ctx, time.Until(began.Add(time.Duration(rows)*time.Second/time.Duration(s.cfg.Rate))), nil)
	return ctx.Err()
}
