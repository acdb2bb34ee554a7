package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// atTime finds where the log was at a time. The database's clock has stamped its transactions, so it alone says what is to come.
func (o *Operator) atTime(ctx context.Context, text string) (to outbox.Position, err error) {
	target, err := ParseTime(text)
	if err != nil {
		return to, err
	}
	ctx, cancel := context.WithTimeout(ctx, boundaryPatience)
	defer cancel()
	now, err := o.Ask.Now(ctx)
	if err != nil {
		return to, err
	}
	if target.After(now) {
		return to, Refusedf("%s has not come yet: it is %s by the database's clock; `checkpoint set --latest` takes the end of the log",
			target.Format(time.RFC3339), now.In(target.Location()).Format(time.RFC3339))
	}
	to, since, err := o.Ask.At(ctx, target)
	if err != nil {
		return to, fmt.Errorf("where the log was at %s could not be found out (files are read for at most %v): %w", target.Format(time.RFC3339), boundaryPatience, err)
	}
	if to.IsZero() {
		return to, Refusedf("the server's log begins at %s, which is not before %s: what was before is purged; "+
			"`checkpoint set --earliest` takes the oldest that is left", since.In(target.Location()).Format(time.RFC3339), target.Format(time.RFC3339))
	}
	return to, nil
}
