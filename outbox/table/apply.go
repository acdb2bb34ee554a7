package table

import (
	"github.com/canal-outbox/canal-outbox/outbox"
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
func (t *Table) update(completion outbox.Action, rows []outbox.Completion) *statement {
	s := &statement{}
	s.text.Grow(textSize(rows))
	id := func(i int) string { return rows[i].ID }
	t.change(s, len(rows), id)
	s.add(t.column(StatusCode), " = ")
	switch {
	case t.triesAgain(completion):
		t.code(s, outbox.Pending)
		t.assignWait(s, rows, id)
	case completion == outbox.ActionMarkSent:
		t.code(s, outbox.Sent)
		t.assignSent(s, rows, id)
	default:
		t.code(s, to[completion])
	}
	if counted(completion) && t.has(FailReason) {
		s.add(", ", t.column(FailReason), " = ")
		t.perRow(s, len(rows), id, func(i int) { s.string(t.columns[FailReason].fit(rows[i].Reason)) })
	}
	if completion != outbox.ActionRelease && t.has(LastExecTime) { // a claim given back was no attempt
		s.add(", ", t.column(LastExecTime), " = ", t.now(LastExecTime))
	}
	t.assignCommon(s)
	t.where(s, len(rows), id)
	t.statusIn(s, from[completion]...)
	t.identityIn(s, completion, rows)
	return s
}

// assignWait writes one attempt more, and when the row is tried again.
func (t *Table) assignWait(s *statement, rows []outbox.Completion, id func(i int) string) {
	if t.has(RetryCount) {
		s.add(", ", t.column(RetryCount), " = ", t.retryCount(), " + 1")
	}
	if t.has(NextRetryTime) {
		// Added in UTC: a local time plus an interval is an hour late when the zone's clock is set back in between.
		s.add(", ", t.column(NextRetryTime), " = CONVERT_TZ(UTC_TIMESTAMP(3) + INTERVAL ")
		t.perRow(s, len(rows), id, func(i int) { s.micros(rows[i].Delay) })
		s.add(" MICROSECOND, '+00:00', ", t.zoneOf(NextRetryTime), ")")
	}
}

func (t *Table) assignSent(s *statement, rows []outbox.Completion, id func(i int) string) {
	if t.has(FailReason) { // of an attempt that no longer counts
		s.add(", ", t.column(FailReason), " = ", t.none(FailReason))
	}
	if t.has(SentAt) {
		s.add(", ", t.column(SentAt), " = ", t.now(SentAt))
	}
	if t.has(BrokerMessageID) {
		s.add(", ", t.column(BrokerMessageID), " = ")
		t.perRow(s, len(rows), id, func(i int) {
			if rows[i].BrokerID == "" {
				s.add(t.column(BrokerMessageID))
				return
			}
			s.string(t.columns[BrokerMessageID].fit(rows[i].BrokerID))
		})
	}
}

// none is the literal for "nothing" in a text column.
func (t *Table) none(role Column) string {
	if t.columns[role].Nullable {
		return "NULL"
	}
	return "''"
}

// textSize is about how long an update's text is: it grows once.
func textSize(rows []outbox.Completion) int {
	n := 1 << 10
	for i := range rows {
		n += 3*len(rows[i].ID) + 2*len(rows[i].MessageID) + 16
	}
	return n
}

// identityIn guards with id and message id, and the completion's own guard as a third member.
func (t *Table) identityIn(s *statement, completion outbox.Action, rows []outbox.Completion) {
	if completion == outbox.ActionMarkSent && t.columns[ID].kindOf() == integer {
		t.identityAsText(s, len(rows), func(i int) *outbox.Identity { return &rows[i].Identity })
		return
	}
	count := counted(completion) && t.has(RetryCount)
	s.add(" AND (", t.column(ID), ", ", t.messageID())
	switch {
	case count:
		s.add(", ", t.retryCount())
	case completion == outbox.ActionRelease:
		s.add(", ", t.stamp())
	}
	s.add(") IN (")
	s.list(len(rows), func(i int) {
		s.add("(")
		t.id(s, rows[i].ID)
		s.add(", ")
		s.bytes(rows[i].MessageID)
		switch {
		case count:
			s.add(", ?")
			s.args = append(s.args, rows[i].RetryCount)
		case completion == outbox.ActionRelease:
			s.add(", ")
			s.string(rows[i].Claim)
		}
		s.add(")")
	})
	s.add(")")
}

// identityAsText is the same guard as one text, "id:message id", which names one pair only because digits hold no colon. MariaDB compares
// texts in half the time that it takes for rows of two, and the guard was half of the statement's.
func (t *Table) identityAsText(s *statement, n int, row func(i int) *outbox.Identity) {
	s.add(" AND CONCAT(", t.column(ID), ", ':', ", t.messageID(), ") IN (")
	s.list(n, func(i int) { s.bytes(row(i).ID, ":", row(i).MessageID) })
	s.add(")")
}

// unfinished reports whether a row that a locking read showed would still be changed by a completion.
func (t *Table) unfinished(s outbox.Completion, c outbox.Candidate) bool {
	matches := false
	for _, status := range from[s.Action] {
		matches = matches || c.Status == status
	}
	switch {
	case counted(s.Action) && t.has(RetryCount):
		return matches && c.RetryCount == s.RetryCount
	case s.Action == outbox.ActionRelease:
		return matches && c.ClaimToken == s.Claim
	}
	return matches
}
