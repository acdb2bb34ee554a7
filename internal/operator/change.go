package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// act is what an order does to rows.
type act struct {
	what  string // the command
	verb  string
	may   func(r *query.Row) string // why not; "" when it may
	apply func(rows Rows, ctx context.Context, ids []outbox.Identity) (int64, error)
}

// RetryMessages sets rows back to PENDING, or with a dry run says which.
func (o *Operator) RetryMessages(ctx context.Context, order MessageOrder) (MessageChange, error) {
	a := act{what: "messages retry", verb: "retried", may: mayRetry, apply: Rows.Retry}
	if order.Republish {
		a = act{what: "messages retry", verb: "published again", may: mayRepublish, apply: Rows.Republish}
	}
	if len(order.Rows) > 0 {
		a.what = "reconcile --republish"
	}
	change, err := o.carryOut(ctx, order, a)
	if err != nil {
		return change, err
	}
	if order.Republish && change.Matched > 0 {
		change.Notes = append(change.Notes, "consumers see these messages again, under the same message ids")
	}
	switch {
	case change.Changed == 0:
	case o.StartSweep == nil:
		change.Notes = append(change.Notes, "no relay runs here: the next start, or the relay elsewhere, publishes them")
	default:
		if err := o.StartSweep(); err != nil {
			change.Notes = append(change.Notes, fmt.Sprintf("the rows are PENDING, but a sweep could not be asked for (%v): the next one publishes them", err))
		}
	}
	return change, nil
}

// DiscardMessages moves rows to the failed-message log, or with a dry run says which.
func (o *Operator) DiscardMessages(ctx context.Context, order MessageOrder) (MessageChange, error) {
	if order.Republish {
		return MessageChange{}, Usagef("republish goes with retry only")
	}
	if rows, name, err := o.table(ctx, order.Table); err == nil {
		wrong, err := rows.FailedLog(ctx, name)
		if err != nil {
			return MessageChange{}, err
		}
		if len(wrong) > 0 {
			return MessageChange{}, Refusedf("%s: %s; fix: %s", wrong[0].Subject, wrong[0].What, wrong[0].Fix)
		}
	}
	change, err := o.carryOut(ctx, order, act{what: "messages discard", verb: "discarded", may: mayDiscard, apply: Rows.Discard})
	if err == nil && change.Matched > 0 {
		change.Notes = append(change.Notes, "discarded rows are in "+change.Table+table.FailedSuffix+", whole; no consumer sees the messages")
	}
	return change, err
}

// carryOut finds the rows of an order and, unless it is a dry run, changes them.
func (o *Operator) carryOut(ctx context.Context, order MessageOrder, a act) (change MessageChange, err error) {
	change = MessageChange{DryRun: order.DryRun, Messages: []Message{}, Refused: []MessageRefusal{}, Notes: []string{}}
	if err := order.Check(); err != nil {
		return change, err
	}
	if o.Refuse != nil && !order.DryRun {
		return change, o.Refuse
	}
	rows, name, err := o.table(ctx, order.Table)
	if err != nil {
		return change, err
	}
	change.Table = name
	var ids []outbox.Identity
	take := func(ref string, r *query.Row) {
		if why := a.may(r); why != "" {
			if ref != "" {
				change.Refused = append(change.Refused, MessageRefusal{Ref: ref, Reason: why})
			}
			return
		}
		if ids = append(ids, r.Identity); len(change.Messages) < shown {
			change.Messages = append(change.Messages, show(r))
		}
	}
	if len(order.Rows) > 0 {
		for _, row := range order.Rows {
			ids = append(ids, outbox.Identity{Table: change.Table, ID: row.ID, MessageID: row.MessageID})
		}
	} else if order.Filter != nil {
		err = eachOf(ctx, rows, order, a, &change, func(r *query.Row) bool { take("", r); return len(ids) < order.Limit })
	} else {
		err = eachNamed(ctx, rows, order, &change, take)
	}
	if err != nil {
		return change, err
	}
	change.Matched = len(ids)
	switch {
	case order.DryRun:
		return change, nil
	case len(change.Refused) > 0:
		return change, Refusedf("nothing was changed: %s; leave out what cannot be %s", sentences(change.Refused), a.verb)
	case len(ids) == 0:
		return change, nil
	}
	return change, o.recorded(ctx, rows, order, a, ids, &change)
}

// noted is the number of rows of one order that a note is made of.
const noted = 1000

// recorded changes rows and has that recorded: before the work, and after it with the number of rows that were changed.
func (o *Operator) recorded(ctx context.Context, rows Rows, order MessageOrder, a act, ids []outbox.Identity, change *MessageChange) error {
	finish := func(_ string, err error) error { return err }
	if o.Record == nil {
		change.Notes = append(change.Notes, "there is no state directory: `canal-outbox audit` will not list this change")
	} else {
		what := a.what
		if len(order.Rows) == 0 {
			asked, err := json.Marshal(order)
			if err != nil {
				return err
			}
			what += " " + short(string(asked))
		}
		var err error
		if finish, err = Begin(ctx, o.Record, what, fmt.Sprintf("%d rows of %s match", len(ids), change.Table)); err != nil {
			return err
		}
	}
	err := applied(ctx, rows, a, ids, change)
	if o.Note != nil {
		o.Note(ids[:min(len(ids), noted)], a.verb, "by "+Caller(ctx)+": "+a.what)
	}
	return finish(fmt.Sprintf("%d of %d rows of %s were %s", change.Changed, len(ids), change.Table, a.verb), err)
}

// applied changes rows, 500 at a time. A row that another session has locked, or that has changed since the preview, is skipped; an error of
// the database ends the work, and the rows before it stay changed.
func applied(ctx context.Context, rows Rows, a act, ids []outbox.Identity, change *MessageChange) error {
	for chunk := range slices.Chunk(ids, 500) {
		n, err := a.apply(rows, ctx, chunk)
		change.Changed += int(n)
		if err != nil {
			return fmt.Errorf("%d of %d messages were %s, then: %w", change.Changed, len(ids), a.verb, err)
		}
	}
	if left := len(ids) - change.Changed; left > 0 {
		change.Notes = append(change.Notes, fmt.Sprintf("%d rows were left alone: they have changed since the preview, or another session holds a lock on them", left))
	}
	return nil
}

// short keeps an order on one line of the list of changes.
func short(text string) string {
	const longest = 400
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}

// eachOf goes through the rows of a filter until each says that it is enough.
func eachOf(ctx context.Context, rows Rows, order MessageOrder, a act, change *MessageChange, each func(r *query.Row) bool) error {
	q, err := order.Filter.listing(rows, change.Table)
	if err != nil {
		return err
	}
	// A state of which no row at all can be taken is a mistake, not an empty list.
	typical := query.Row{Status: outbox.Held, State: q.State, Attempts: 1, DueIn: time.Hour}
	if q.State == table.DelayedState {
		typical.Status = outbox.Pending
	}
	for _, status := range []outbox.Status{outbox.Pending, outbox.Sending, outbox.Sent, outbox.Failed} {
		if q.State == status.String() {
			typical.Status = status
		}
	}
	typical.Failed = typical.Status == outbox.Failed
	if why := a.may(&typical); q.State == query.AnyState || why != "" {
		return Refusedf("messages that are %s cannot be %s: %s", q.State, a.verb, why)
	}
	q.Limit, q.Scan = MaxMessages, order.Scan
	for enough := false; ; {
		listed, err := list(ctx, rows, change.Table, q)
		if err != nil {
			return err
		}
		for i := range listed.Rows {
			if enough {
				change.More = true
				return nil
			}
			enough = !each(&listed.Rows[i])
		}
		if enough || listed.Next == "" {
			change.More = listed.Next != ""
			return nil
		}
		q.After = listed.Next
	}
}

// eachNamed goes through the rows that an order names: by primary key, or else by message id.
func eachNamed(ctx context.Context, rows Rows, order MessageOrder, change *MessageChange, each func(ref string, r *query.Row)) error {
	refuse := func(ref, why string) {
		change.Refused = append(change.Refused, MessageRefusal{Ref: ref, Reason: why})
	}
	seen := map[outbox.Identity]bool{}
	for _, ref := range order.IDs {
		found, err := rows.Find(ctx, change.Table, ref, order.Scan)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(found.Rows, func(r query.Row) bool { return r.ID == ref })
		if i < 0 {
			i = slices.IndexFunc(found.Rows, func(r query.Row) bool { return r.MessageID == ref })
		}
		switch {
		case i >= 0 && seen[found.Rows[i].Identity]:
		case i >= 0:
			seen[found.Rows[i].Identity] = true
			each(ref, &found.Rows[i])
		case len(found.Rows) > 0:
			refuse(ref, "it is a business key, which may be that of several messages: name a primary key or a message id, or use a filter by key")
		case found.Scan != "":
			refuse(ref, found.Scan)
		default:
			refuse(ref, "there is no such row in "+change.Table)
		}
	}
	return nil
}

func sentences(refused []MessageRefusal) string {
	var all []string
	for i, r := range refused {
		if i == shown {
			all = append(all, fmt.Sprintf("and %d more", len(refused)-shown))
			break
		}
		all = append(all, fmt.Sprintf("%s: %s", r.Ref, r.Reason))
	}
	return strings.Join(all, "; ")
}

// mayRetry says why a row cannot be retried.
func mayRetry(r *query.Row) string {
	switch {
	case r.Status == outbox.Failed:
		return ""
	case r.Status == outbox.Pending && r.DueIn <= 0:
		return "it is PENDING and due: the relay publishes it without a retry; `messages trace` says what it waits for"
	case r.Status == outbox.Pending && r.Attempts == 0:
		return "it is a delayed message that was never tried: it is due at " + r.Due.UTC().Format(time.RFC3339)
	case r.Status == outbox.Pending:
		return ""
	case r.Status == outbox.Sending:
		return "it is SENDING: a relay owns it, or a sweep takes it over when its claim has expired"
	case r.Status == outbox.Sent:
		return "it is SENT: the broker has it; republish (--republish) publishes it again"
	}
	if r.State != "" && r.State != table.HeldState {
		return "its status " + state(r) + " is a state of its consumers or operators"
	}
	return unknownCode(r)
}

// mayRepublish says why a row cannot be published again.
func mayRepublish(r *query.Row) string {
	if r.Status == outbox.Sent {
		return ""
	}
	return "it is " + state(r) + ", and only a message that is SENT can be published again; retry takes FAILED ones"
}

// mayDiscard says why a row cannot be discarded.
func mayDiscard(r *query.Row) string {
	switch {
	case r.Status == outbox.Failed, r.Failed && r.DueIn > 0:
		return ""
	case r.Failed:
		return "it is PENDING and due: the relay tries it next"
	}
	return "it is " + state(r) + ": only messages that have failed can be discarded"
}

func state(r *query.Row) string {
	if r.State != "" {
		return strings.ToUpper(r.State)
	}
	return "held (" + unknownCode(r) + ")"
}
