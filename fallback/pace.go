package fallback

import (
	"context"
	"time"
)

// pageRows is how many rows a page of a sweep has: a batch, and no more than the rate allows for a second.
func (c *Config) pageRows() int {
	if c.Rate > 0 {
		return min(c.Batch, c.Rate)
	}
	return c.Batch
}

// pace waits until as much time has passed since began as the rate asks for so many published rows. Nothing is reserved or claimed
// meanwhile.
func (s *Sweeper) pace(ctx context.Context, began time.Time, rows int) error {
	if s.cfg.Rate <= 0 || rows == 0 {
		return nil
	}
	timer := time.NewTimer(time.Until(began.Add(time.Duration(rows) * time.Second / time.Duration(s.cfg.Rate))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
