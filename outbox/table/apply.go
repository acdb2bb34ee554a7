package table

import (
	"github.com/canal-outbox/canal-outbox/outbox"
)

// from are the states that a verdict leaves (design 1, "States and moves").
var from = [...][]outbox.Status{
	outbox.VerdictSent:    {outbox.Pending, outbox.Sending, outbox.Failed},
	outbox.VerdictRetry:   {outbox.Pending, outbox.Sending},
	outbox.VerdictFailed:  {outbox.Pending, outbox.Sending},
	outbox.VerdictRelease: {outbox.Sending},
}

// to are the states that a verdict leads to.
var to = [...]outbox.Status{
	outbox.VerdictSent:    outbox.Sent,
	outbox.VerdictRetry:   outbox.Pending,
	outbox.VerdictFailed:  outbox.Failed,
	outbox.VerdictRelease: outbox.Pending,
}

// counted verdicts are guarded by the row's retry count, so that a repeated statement counts once.
func counted(v outbox.Verdict) bool { return v == outbox.VerdictRetry || v == outbox.VerdictFailed }

// update writes one verdict to rows that all have it. Each row is named by id, state, and what tells it from a later row
// with the same id; a row that does not match is left alone.
func (t *Table) update(verdict outbox.Verdict, rows []outbox.Settlement) *statement {
	s := &statement{}
	id := func(i int) string { return rows[i].ID }
	s.add("UPDATE ", t.quoted, " FORCE INDEX (PRIMARY) SET ", t.column(StatusCode), " = ")
	t.code(s, to[verdict])
	switch verdict {
	case outbox.VerdictSent:
		t.assignSent(s, rows, id)
	case outbox.VerdictRetry:
		s.add(", ", t.column(RetryCount), " = ", t.retryCount(), " + 1, ", t.column(NextRetryTime), " = ",
			t.now(NextRetryTime), " + INTERVAL ")
		t.perRow(s, len(rows), id, func(i int) { s.micros(rows[i].Delay) })
		s.add(" MICROSECOND")
	}
	if counted(verdict) {
		s.add(", ", t.column(FailReason), " = ")
		t.perRow(s, len(rows), id, func(i int) { s.string(t.columns[FailReason].fit(rows[i].Reason)) })
	}
	t.assignCommon(s)
	s.add(" WHERE ")
	t.idIn(s, len(rows), id)
	s.add(" AND ")
	t.statusIn(s, from[verdict]...)
	t.identityIn(s, verdict, rows)
	return s
}

func (t *Table) assignSent(s *statement, rows []outbox.Settlement, id func(i int) string) {
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

// identityIn guards with rows of (id, message id), and the verdict's own guard as a third member.
func (t *Table) identityIn(s *statement, verdict outbox.Verdict, rows []outbox.Settlement) {
	s.add(" AND (", t.column(ID), ", ", t.messageID())
	switch {
	case counted(verdict):
		s.add(", ", t.retryCount())
	case verdict == outbox.VerdictRelease:
		s.add(", ", t.stamp())
	}
	s.add(") IN (")
	s.list(len(rows), func(i int) {
		s.add("(", rows[i].ID, ", ")
		s.bytes(rows[i].MessageID)
		switch {
		case counted(verdict):
			s.add(", ?")
			s.args = append(s.args, rows[i].RetryCount)
		case verdict == outbox.VerdictRelease:
			s.add(", ")
			s.string(rows[i].Claim)
		}
		s.add(")")
	})
	s.add(")")
}

// unfinished reports whether a row that a locking read showed would still be changed by a settlement.
func unfinished(s outbox.Settlement, c outbox.Candidate) bool {
	matches := false
	for _, status := range from[s.Verdict] {
		matches = matches || c.Status == status
	}
	switch {
	case counted(s.Verdict):
		return matches && c.RetryCount == s.RetryCount
	case s.Verdict == outbox.VerdictRelease:
		return matches && c.Stamp == s.Claim
	}
	return matches
}
