package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Discard moves rows that are FAILED into the failed-message log of their table, in transactions of at most 500: after a crash each is in
// exactly one table. Where no row can be FAILED it moves PENDING rows that were refused and wait. Any other row stays, and so does one
// that another session has locked. A row whose move the server refuses is an error that names it, after all others. It returns how many were moved, also with an error.
func (s departures) Discard(ctx context.Context, identities []outbox.Identity) (n int64, err error) {
	err = s.byKeyTold(identities, func(t *mapped, chunk []outbox.Identity) error {
		if !t.Fails() {
			if chunk, err = s.tried(ctx, t, chunk); err != nil || len(chunk) == 0 {
				return err
			}
		}
		gone, err := s.discard(ctx, t, chunk)
		n += int64(gone)
		if err == nil && t.KeepsWaits() {
			err = s.waits.Keep(nil, chunk)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("discard rows: %w", err)
	}
	return n, err
}

// discard is one transaction, or, on a server without SKIP LOCKED, where one waited for a lock in vain, one for each row.
func (s departures) discard(ctx context.Context, t *mapped, chunk []outbox.Identity) (gone int, err error) {
	err = s.again(ctx, func() error {
		gone, err = s.leave(ctx, t, table.FailedSuffix, func(rows *table.Statement) { t.discardable(rows, chunk) })
		return err
	})
	if !t.waits.Load() || !server.LockWait(err) {
		return gone, err
	}
	if len(chunk) == 1 {
		return 0, nil
	}
	for one := range slices.Chunk(chunk, 1) {
		n, err := s.discard(ctx, t, one)
		if gone += n; err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// tried leaves of identities those whose rows were refused.
func (s departures) tried(ctx context.Context, t *mapped, identities []outbox.Identity) ([]outbox.Identity, error) {
	rows, err := s.states(ctx, t, identities, nil)
	if err != nil {
		return nil, err
	}
	var list []outbox.Identity
	for _, r := range rows {
		if r.Status == outbox.Pending && r.RetryCount > 0 && r.Waiting {
			list = append(list, r.Identity)
		}
	}
	return list, nil
}

// discardable writes the condition under which rows are moved, once more under their locks.
func (t *mapped) discardable(s *table.Statement, identities []outbox.Identity) {
	t.IDIn(s, len(identities), func(i int) string { return identities[i].ID })
	s.Add(" AND ")
	switch {
	case t.Fails():
		t.statusIn(s, outbox.Failed)
	default:
		t.statusIn(s, outbox.Pending)
		if t.Has(table.NextRetryTime) {
			s.Add(" AND ", t.Column(table.NextRetryTime), " > ", t.Now(table.NextRetryTime))
		}
		if t.Has(table.RetryCount) {
			s.Add(" AND ", t.RetryCount(), " > 0")
		}
	}
	t.sameRows(s, len(identities), func(i int) *outbox.Identity { return &identities[i] }, "", nil)
}

// FailedLog reports what prevents Discard: the table that the rows move to does not exist or does not fit, or the account lacks
// a privilege. It changes nothing.
func (s departures) FailedLog(ctx context.Context, name string) ([]server.Finding, error) {
	t, err := s.table(name)
	if err != nil {
		return nil, err
	}
	findings, _, err := CheckFailedLog(ctx, s.db, t.Table)
	return slices.DeleteFunc(findings, func(f server.Finding) bool { return f.Severity == server.OK }), err
}

// CheckFailedLog is FailedLog for a doctor; exists is whether there is such a table at all.
func CheckFailedLog(ctx context.Context, db *sql.DB, of *table.Table) (findings []server.Finding, exists bool, err error) {
	t := withLocks(of)
	_, wrong, err := t.copied(ctx, db, table.FailedSuffix)
	if err != nil {
		return nil, false, fmt.Errorf("look at table %s%s: %w", t.Name(), table.FailedSuffix, err)
	}
	if len(wrong) > 0 && wrong[0].Subject == t.Name()+table.FailedSuffix {
		return []server.Finding{{
			Severity: server.Fault, Subject: wrong[0].Subject,
			What: "there is no such table, or the account may not see it: it is the log that discarded messages of " + t.Name() + " move to",
			Fix:  "let an administrator run:\n" + t.moveDDL(table.FailedSuffix),
		}}, false, nil
	}
	if len(wrong) > 0 {
		return wrong, true, nil
	}
	findings, _, err = server.Missing(ctx, db, []server.Probe{t.moveProbe(table.FailedSuffix), t.removeProbe()})
	if err != nil {
		return nil, true, err
	}
	for i := range findings {
		findings[i].Severity, findings[i].What = server.Warning, "messages of "+t.Name()+" cannot be discarded: "+findings[i].What
	}
	if len(findings) == 0 {
		findings = append(findings, server.Finding{Severity: server.OK, Subject: t.Name(), What: "discarded messages move to " + t.Name() + table.FailedSuffix})
	}
	return findings, true, nil
}
