package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// atTime finds where the log was at a moment. The database's clock has stamped its transactions, so it alone says what is to come.
func (o *Operator) atTime(ctx context.Context, text string) (to outbox.Position, err error) {
	moment, err := ParseMoment(text)
	if err != nil {
		return to, err
	}
	ctx, cancel := context.WithTimeout(ctx, boundaryPatience)
	defer cancel()
	now, err := o.Ask.Now(ctx)
	if err != nil {
		return to, err
	}
	if moment.After(now) {
		return to, Refusedf("%s has not come yet: it is %s by the database's clock; `checkpoint set --latest` takes the end of the log",
			moment.Format(time.RFC3339), now.In(moment.Location()).Format(time.RFC3339))
	}
	to, since, err := o.Ask.At(ctx, moment)
	if err != nil {
		return to, fmt.Errorf("where the log was at %s could not be found out (files are read for at most %v): %w", moment.Format(time.RFC3339), boundaryPatience, err)
	}
	if to.IsZero() {
		return to, Refusedf("the server's log begins at %s, which is not before %s: what was before is purged; "+
			"`checkpoint set --earliest` takes the oldest that is left", since.In(moment.Location()).Format(time.RFC3339), moment.Format(time.RFC3339))
	}
	return to, nil
}
