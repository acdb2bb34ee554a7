package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Contents are what a store holds that can be read without opening it for writing.
type Contents struct {
	Source     server.ID       // zero when none is recorded
	Checkpoint outbox.Position // zero when there is none
	At         time.Time       // when the checkpoint was written, by our clock; zero when there is none
	Origin     Origin
	Journal    int // rows that the broker has taken and the table has not written
}

// Peek reads a store and changes nothing in it: it works on a full disk and on one that is read-only. Every record is read
// and checked, as Open does. The errors are those of OpenContext; a directory without a store has no contents and is no error.
func Peek(ctx context.Context, dir string, opts Options) (c Contents, err error) {
	if !Exists(dir) {
		return Contents{}, nil
	}
	opts.readOnly = true
	opts.OnFatal = func(error) {} // the error is returned
	s, err := OpenContext(ctx, dir, opts)
	if errors.Is(err, errHalfMade) {
		return Contents{}, nil
	}
	if err != nil {
		return Contents{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c.Source, _ = s.Source()
	c.Checkpoint, _ = s.Checkpoint()
	c.Origin = s.Origin()
	stats := s.Stats()
	c.At, c.Journal = stats.CheckpointAt, stats.JournalEntries
	return c, nil
}
