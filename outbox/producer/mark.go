package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// State is what a status code means. The words are those of tables[].codes in the relay's configuration.
type State string

// The states that an application writes or leaves behind.
const (
	Pending State = "pending"
	Sending State = "sending" // claimed by the relay
	Sent    State = "sent"
	Failed  State = "failed"
)

// reasonLength bounds a reason, in characters, where the layout does not say how much its column takes.
const reasonLength = 1000

// MarkSent says that the application has published a message itself: the relay, which would publish it after tables[].grace, leaves the row alone then.
// Call it after the broker has confirmed the message, outside the transaction of the Insert, with the message id that Insert returned.
// A row that the relay has claimed meanwhile, or that is FAILED, becomes SENT too, because the broker has the message. False: there is no such row, or it is SENT
// or in a state of the consumers.
func (t *Table) MarkSent(ctx context.Context, db Execer, messageID string) (marked bool, err error) {
	u := t.update(messageID)
	u.state(Sent, "")
	if column := t.quoted[SentAt]; column != "" {
		u.set(column+" = "+t.now, nil)
	}
	u.among(Pending, Sending, Failed)
	return u.run(ctx, db, "mark as sent")
}

// MarkFailed says that a message can never be published: the relay does not try it, and shows it to people. False: there is no such row, or it is not
// PENDING any more; a row that the relay has claimed is the relay's.
func (t *Table) MarkFailed(ctx context.Context, db Execer, messageID, reason string) (marked bool, err error) {
	u := t.update(messageID)
	u.state(Failed, reason)
	u.among(Pending)
	return u.run(ctx, db, "mark as failed")
}

// CountAttempt counts an attempt of the application that failed: the row stays PENDING, and the relay sends it when next has passed (and the grace). before is
// how many attempts the row showed before this one, 0 for the first: a statement that is repeated counts once. False: there is no such row, it is not
// PENDING any more, or it shows another number of attempts.
func (t *Table) CountAttempt(ctx context.Context, db Execer, messageID string, before int, next time.Duration, reason string) (counted bool, err error) {
	u := t.update(messageID)
	attempts := t.quoted[RetryCount]
	if attempts == "" {
		u.fail("the table has no column for retry_count")
	}
	u.set(attempts+" = "+attempts+" + 1", nil)
	switch {
	case next < 0 || next > maxDelay:
		u.fail("the next attempt is %v away", next)
	case t.quoted[DueAt] != "":
		u.set(t.quoted[DueAt]+" = "+t.later, next.Microseconds())
	case next > 0:
		u.fail("the next attempt is %v away, and the table has no column for next_retry_time: give 0", next)
	}
	u.reason(reason)
	u.among(Pending)
	u.where(attempts+" = ?", before)
	return u.run(ctx, db, "count an attempt")
}

// update builds one UPDATE of one row and keeps the first fault.
type update struct {
	table            *Table
	sets, conditions []string
	args, values     []any // of the sets, of the conditions
	err              error
}

// update begins with the row's message id, and with what each change of a row writes.
func (t *Table) update(messageID string) *update {
	u := &update{table: t}
	switch id, ok := parseUUID(messageID); {
	case messageID == "":
		u.fail("the message id is empty")
	case t.quoted[MessageID] == "":
		kind, key, _ := strings.Cut(messageID, ":")
		u.where(t.quoted[BizType]+" = ?", kind)
		u.where(t.quoted[Key]+" = ?", key)
	case t.binaryID && !ok:
		u.fail("message_id %q is no UUID", messageID)
	case t.binaryID:
		u.where(t.quoted[MessageID]+" = ?", id[:])
	default:
		u.where(t.quoted[MessageID]+" = ?", messageID)
	}
	if column := t.quoted[UpdatedAt]; column != "" {
		u.set(column+" = "+t.now, nil)
	}
	if column := t.quoted[UpdatedBy]; column != "" {
		u.set(column+" = ?", t.writer)
	}
	if column := t.quoted[LockVersion]; column != "" {
		u.set(column+" = "+column+" + 1", nil)
	}
	return u
}

func (u *update) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, args...)
	}
}

// set adds an assignment; arg nil is none.
func (u *update) set(assignment string, arg any) {
	u.sets = append(u.sets, assignment)
	if arg != nil {
		u.args = append(u.args, arg)
	}
}

func (u *update) where(condition string, value any) {
	u.conditions, u.values = append(u.conditions, condition), append(u.values, value)
}

// state writes a code, and why.
func (u *update) state(to State, reason string) {
	code, known := u.table.codes[to]
	if !known || u.table.quoted[Status] == "" {
		u.fail("the table has no code for %s: name one in Options.Codes", to)
	}
	u.set(u.table.quoted[Status]+" = ?", code)
	u.reason(reason)
}

// reason is cut to what the column takes; "" leaves the column alone.
func (u *update) reason(text string) {
	column := u.table.quoted[FailReason]
	if text == "" || column == "" {
		return
	}
	limit := u.table.limits[FailReason]
	if limit == 0 {
		limit = reasonLength
	}
	if text = strings.ToValidUTF8(text, "?"); utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit])
	}
	u.set(column+" = ?", text)
}

// among is the condition that the row is in one of the states that the table has codes for.
func (u *update) among(states ...State) {
	var places []string
	for _, s := range states {
		if code, known := u.table.codes[s]; known {
			places, u.values = append(places, "?"), append(u.values, code)
		}
	}
	u.conditions = append(u.conditions, u.table.quoted[Status]+" IN ("+strings.Join(places, ", ")+")")
}

func (u *update) run(ctx context.Context, db Execer, what string) (changed bool, err error) {
	if u.err == nil && u.table.quoted[Status] == "" {
		u.err = errors.New("the table has no status")
	}
	if u.err != nil {
		return false, fmt.Errorf("%s in %s: %w; nothing was changed", what, u.table.table, u.err)
	}
	query := "UPDATE " + u.table.name + " SET " + strings.Join(u.sets, ", ") + " WHERE " + strings.Join(u.conditions, " AND ")
	result, err := db.ExecContext(ctx, query, slices.Concat(u.args, u.values)...)
	if err != nil {
		return false, fmt.Errorf("%s in %s: %w", what, u.table.table, err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
