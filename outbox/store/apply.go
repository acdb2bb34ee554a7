package store

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// from are the states that a completion leaves.
var from = [...][]outbox.Status{
	outbox.ActionMarkSent: {outbox.Pending, outbox.Sending, outbox.Failed},
	outbox.ActionRetry:    {outbox.Pending, outbox.Sending},
	outbox.ActionFail:     {outbox.Pending, outbox.Sending},
	outbox.ActionRelease:  {outbox.Sending},
}

// to are the states that a completion leads to.
var to = [...]outbox.Status{
	outbox.ActionMarkSent: outbox.Sent,
	outbox.ActionRetry:    outbox.Pending,
	outbox.ActionFail:     outbox.Failed,
	outbox.ActionRelease:  outbox.Pending,
}

// counted completions are guarded by the row's retry count, so that a repeated statement counts once. Where Waits count, a
// repeated statement writes the same count again.
func counted(v outbox.Action) bool { return v == outbox.ActionRetry || v == outbox.ActionFail }

// update writes one completion to rows that all have it. Each row is named by its id, its state, and the values that distinguish
// it from a later row with the same id. A row that does not match is not changed.
func (t *mapped) update(completion outbox.Action, rows []outbox.Completion) *table.Statement {
	row := func(i int) *outbox.Identity { return &rows[i].Identity }
	id := func(i int) string { return rows[i].ID }
	return t.changing(len(rows), row, from[completion], func(s *table.Statement) {
		s.Add(t.Column(table.StatusCode), " = ")
		switch {
		case t.triesAgain(completion):
			t.Code(s, outbox.Pending)
			t.assignWait(s, rows, id)
		case completion == outbox.ActionMarkSent:
			t.Code(s, outbox.Sent)
			t.assignSent(s, rows, id)
		default:
			t.Code(s, to[completion])
		}
		if counted(completion) && t.Has(table.FailReason) {
			s.Add(", ", t.Column(table.FailReason), " = ")
			t.perRow(s, len(rows), id, func(i int) { s.Arg(t.Type(table.FailReason).Fit(rows[i].Reason)) })
		}
		if completion != outbox.ActionRelease && t.Has(table.LastExecTime) { // a claim given back was no attempt
			s.Add(", ", t.Column(table.LastExecTime), " = ", t.Now(table.LastExecTime))
		}
	}, func(s *table.Statement) {
		switch {
		case completion == outbox.ActionMarkSent:
			t.identityIn(s, len(rows), row)
		case counted(completion) && t.Has(table.RetryCount):
			t.sameRows(s, len(rows), row, t.RetryCount(), func(i int) {
				s.Add("?")
				s.Args = append(s.Args, rows[i].RetryCount)
			})
		case completion == outbox.ActionRelease:
			t.sameRows(s, len(rows), row, t.stamp(), func(i int) { s.Arg(rows[i].Claim) })
		default:
			t.sameRows(s, len(rows), row, "", nil)
		}
	})
}

// assignWait writes one attempt more, and when the row is tried again.
func (t *mapped) assignWait(s *table.Statement, rows []outbox.Completion, id func(i int) string) {
	if t.Has(table.RetryCount) {
		s.Add(", ", t.Column(table.RetryCount), " = ", t.RetryCount(), " + 1")
	}
	if t.Has(table.NextRetryTime) {
		// Added in UTC: a local time plus an interval is an hour late when the zone's clock is set back in between.
		s.Add(", ", t.Column(table.NextRetryTime), " = CONVERT_TZ(UTC_TIMESTAMP(3) + INTERVAL ")
		t.perRow(s, len(rows), id, func(i int) { s.Micros(rows[i].Delay) })
		s.Add(" MICROSECOND, '+00:00', ", t.ZoneOf(table.NextRetryTime), ")")
	}
}

func (t *mapped) assignSent(s *table.Statement, rows []outbox.Completion, id func(i int) string) {
	if t.Has(table.FailReason) { // of an attempt that no longer counts
		s.Add(", ", t.Column(table.FailReason), " = ", t.none(table.FailReason))
	}
	if t.Has(table.SentAt) {
		s.Add(", ", t.Column(table.SentAt), " = ", t.Now(table.SentAt))
	}
	if t.Has(table.BrokerMessageID) {
		s.Add(", ", t.Column(table.BrokerMessageID), " = ")
		t.perRow(s, len(rows), id, func(i int) {
			if rows[i].BrokerID == "" {
				s.Add(t.Column(table.BrokerMessageID))
				return
			}
			s.Arg(t.Type(table.BrokerMessageID).Fit(rows[i].BrokerID))
		})
	}
}

// none is the literal for "nothing" in a text column.
func (t *mapped) none(role table.Column) string {
	if t.Type(role).Nullable {
		return "NULL"
	}
	return "''"
}

// identityIn guards with id and message id.
func (t *mapped) identityIn(s *table.Statement, n int, row func(i int) *outbox.Identity) {
	if t.Type(table.ID).Kind() != table.KindInteger {
		t.sameRows(s, n, row, "", nil)
		return
	}
	// One text, "id:message id", names one pair only because digits hold no colon. MariaDB compares texts in half the time that it takes for rows of
	// two, and the guard was half of the statement's.
	s.Add(" AND CONCAT(", t.Column(table.ID), ", ':', ", t.MessageID(), ") IN (")
	s.List(n, func(i int) { s.Bytes(row(i).ID, ":", row(i).MessageID) })
	s.Add(")")
}

// unfinished reports whether a row that a locking read showed would still be changed by a completion.
func (t *mapped) unfinished(s outbox.Completion, c outbox.Candidate) bool {
	matches := false
	for _, status := range from[s.Action] {
		matches = matches || c.Status == status
	}
	switch {
	case counted(s.Action) && t.Has(table.RetryCount):
		return matches && c.RetryCount == s.RetryCount
	case s.Action == outbox.ActionRelease:
		return matches && c.ClaimToken == s.Claim
	}
	return matches
}
