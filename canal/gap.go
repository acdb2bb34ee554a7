package canal

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// gapError reports that the log cannot be followed from here: the table must be swept and the log resumed at its end.
type gapError struct {
	cause outbox.GapCause
	what  string
}

// Error implements error.
func (e *gapError) Error() string { return e.what }

// gap reports a gap and moves to the position that the handler stored.
func (r *Reader) gap(ctx context.Context, p *serverState, cause outbox.GapCause, why string) error {
	from := r.from()
	resume, err := r.handler.Gap(ctx, outbox.Gap{From: from, To: p.end, Cause: cause, At: time.Now()})
	if err != nil {
		return &handlerError{fmt.Errorf("report a gap (%s): %w", cause, err)}
	}
	if cause != outbox.GapFirstStart {
		r.log.Error("part of the binlog was not read; the sweep publishes its rows", zap.String("cause", string(cause)),
			zap.String("why", why), zap.Stringer("from", from), zap.Stringer("resume", resume))
	}
	r.setPosition(resume)
	if err := r.tables.forget(); err != nil {
		return &handlerError{err}
	}
	r.pastStuck()
	r.logged = ""
	return nil
}
