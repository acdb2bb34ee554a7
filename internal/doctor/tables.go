package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Inspect checks the server's settings, the grants and the mapped tables as the relay will use them, on a connection like those
// of the status updates, and binds the tables. It returns all problems as findings; an error means that the server did not
// answer, or, a *server.ReadOnlyError, that it accepts no writes now. A start uses it too. With writes false it is for a relay
// that only reads (run --shadow), which needs no right to write.
func Inspect(ctx context.Context, source server.Config, mappings []table.Mapping, writes bool) (tables []*table.Table, findings []server.Finding, err error) {
	db, err := server.Open(source, nil, server.Session{Writes: true, MaxConns: 1})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	info, err := server.Inspect(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	var probes []server.Probe
	mappings, findings, err = table.Expand(ctx, db, mappings)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range mappings {
		t, found, err := load(ctx, db, m)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, found...)
		if t == nil {
			continue
		}
		if slices.ContainsFunc(tables, func(other *table.Table) bool { return other.Name() == t.Name() }) {
			findings = append(findings, namedTwice(t, m))
			continue
		}
		tables, probes = append(tables, t), append(probes, store.Probes(t, writes)...)
		if writes {
			leaving, more, err := store.CheckRetention(ctx, db, t, t.Expiries())
			if err != nil {
				return nil, nil, err
			}
			probes, findings = append(probes, more...), append(findings, leaving...)
		}
	}
	if slices.ContainsFunc(tables, (*table.Table).LogOnly) && !strings.EqualFold(info.RowMetadata, "FULL") {
		findings = append(findings, server.Finding{
			Severity: server.Warning, Subject: "binlog_row_metadata", What: "rows of a table without a status carry no column names: " +
				"behind an ALTER TABLE in the log that is not understood, the reader stops before the rows in doubt, because no sweep would find them",
			Fix: info.Cure(server.RowMetadata),
		})
	}
	grants, err := info.Grants(ctx, db, probes)
	if err != nil {
		return nil, nil, err
	}
	findings = append(findings, slices.Compact(grants)...) // several statements may miss the same privilege
	settings, err := info.Check(ctx, db)
	if err != nil && !server.HasFault(grants) { // without the grant the settings cannot be read, which the grant's fault says
		return nil, nil, err
	}
	return tables, append(settings, findings...), nil
}

func namedTwice(t *table.Table, m table.Mapping) server.Finding {
	return server.Finding{
		Severity: server.Fault, Subject: t.Name(), What: fmt.Sprintf("two entries of tables[] name this table, one of them as %s.%s", m.Schema, m.Name),
		Fix: "remove one of them: every row would be published twice",
	}
}

// ReadOnly is the fault of a server that accepts no writes.
func ReadOnly(err error) server.Finding {
	return server.Finding{
		Severity: server.Fault, Subject: "source", What: "no status can be written: " + err.Error(), Fix: "point source.address at the primary, or end the maintenance",
	}
}

// load binds one table. If it has faults, the preset that fits is reported before them, because they advise to map column by
// column.
func load(ctx context.Context, db *sql.DB, m table.Mapping) (*table.Table, []server.Finding, error) {
	t, findings, err := table.Load(ctx, db, m)
	if t != nil || err != nil {
		return t, findings, err
	}
	fits, found, err := table.Fitting(ctx, db, m)
	if found {
		findings = append([]server.Finding{fits}, findings...)
	}
	return nil, findings, err
}

// tables checks the log's settings, the grants and every mapped table, like a start.
func (d *doctor) tables(ctx context.Context, settings server.Config, db *sql.DB) {
	tables, findings, err := Inspect(ctx, settings, d.Mappings, true)
	d.findings = append(d.findings, findings...)
	switch {
	case server.Classify(err) == server.ReadOnly:
		d.findings = append(d.findings, ReadOnly(err))
		return
	case err != nil:
		d.add(server.Fault, "tables", "", "%v", err)
		return
	}
	for _, t := range tables {
		d.table(ctx, db, t)
	}
	d.lease(ctx, db, tables)
	d.others(ctx, db, tables)
	if d.Config.Fallback.ReadFrom != "" {
		d.replica(ctx, table.WithStatus(tables))
	}
	d.history(ctx, db)
}

// lease checks the lease table.
func (d *doctor) lease(ctx context.Context, db *sql.DB, tables []*table.Table) {
	if len(tables) == 0 {
		return
	}
	if !d.Config.Lease.Enabled {
		d.add(server.OK, "lease", "", "off (lease.enabled): no other relay can stand by")
		return
	}
	found, err := d.Lease(ctx, db, tables[0].Name())
	if err != nil {
		d.add(server.Warning, "lease", "", "%v", err)
		return
	}
	d.findings = append(d.findings, found)
	d.leased = found.Severity == server.OK
}

// history checks whether retention can see that the server's purge is behind.
func (d *doctor) history(ctx context.Context, db *sql.DB) {
	if !slices.ContainsFunc(d.Mappings, func(m table.Mapping) bool { return len(m.Expiries) > 0 }) {
		return
	}
	length, known, err := server.HistoryLength(ctx, db)
	switch {
	case err != nil:
		d.add(server.Warning, "retention", "", "%v", err)
	case !known:
		d.notChecked("retention", "PROCESS", "the length of the history list; old rows leave without regard to the server's purge")
	default:
		d.add(server.OK, "retention", "", "the server's history list, which old rows that leave make longer, can be seen (%d now)", length)
	}
}

// replica checks the tables on the server that the sweep reads.
func (d *doctor) replica(ctx context.Context, tables []*table.Table) {
	const subject = "fallback.read_from"
	settings, err := d.Replica()
	if err != nil {
		d.add(server.Fault, subject, "", "%v", err)
		return
	}
	db, err := server.Open(settings, nil, server.Session{MaxConns: 1})
	if err != nil {
		d.add(server.Warning, subject, "", "%v", err)
		return
	}
	defer func() { _ = db.Close() }() // after the answers a broken connection is not a finding
	for _, t := range tables {
		there, err := t.LoadFrom(ctx, db)
		if err != nil {
			d.add(server.Warning, subject, "give the account of source the SELECT privilege on the tables there, or leave fallback.read_from out",
				"the sweep reads the primary, because the server at %s does not show %s: %v", settings.Address, t.Name(), err)
			continue
		}
		plan, err := store.ExplainSweep(ctx, db, there)
		if err != nil {
			d.add(server.Warning, subject, "", "not checked how the sweep looks for rows of %s at %s: %v", t.Name(), settings.Address, err)
			continue
		}
		plan.Subject = subject + ", " + plan.Subject
		d.findings = append(d.findings, plan)
	}
}

// again reports what happens to the FAILED rows of a table.
func (d *doctor) again(t *table.Table) {
	every := t.FailedEvery(d.Config.Retry.FailedEvery)
	switch {
	case every > 0:
		d.add(server.OK, t.Name(), "", "FAILED rows are tried again every %v%s", every, t.FailedSince())
	case d.Config.Retry.FailedEvery > 0:
		d.add(server.OK, t.Name(), "", "retry.failed_every has no effect: no code is mapped to FAILED")
	}
	if r := t.Redeliver(); r.After > 0 {
		d.add(server.OK, t.Name(), "", "rows that are SENT for %v%s and not %s go out again, %d times at most", r.After, t.SentSince(), r.Until, r.Max)
	}
}

// others looks for a second relay of the same tables. This state directory's own relay, when it runs, also holds them.
func (d *doctor) others(ctx context.Context, db *sql.DB, tables []*table.Table) {
	var names []string
	for _, t := range tables {
		names = append(names, t.Name())
	}
	relays, err := server.OtherRelays(ctx, db, names)
	if err != nil {
		d.add(server.Warning, "relays", "", "not checked whether another relay works on the tables: %v", err)
		return
	}
	for _, name := range names {
		var found, active []string
		for _, r := range relays {
			switch {
			case r.Table != name:
			case r.Leased && d.leased:
				active = append(active, r.String())
			default:
				found = append(found, r.String())
			}
		}
		const fix = "stop one of them; SHOW PROCESSLIST shows where each comes from"
		switch {
		case d.running && len(found)+min(len(active), 1) > 1:
			found = append(found, active...)
			d.add(server.Fault, name, fix, "%d relays work on the table, and each row is published by all: %s", len(found), strings.Join(found, ", "))
		case !d.running && len(found) > 0:
			d.add(server.Fault, name, fix, "another relay works on the table, and with this one each row would be published twice: %s", strings.Join(found, ", "))
		case !d.running && len(active) > 0:
			d.add(server.OK, name, "", "another relay holds the lease, and this one would stand by: %s", strings.Join(active, ", "))
		}
	}
}

// recentRows is the number of newest rows that are checked for topics and sizes.
const recentRows = 1000

// table checks how the sweep would read rows, and checks the newest ones.
func (d *doctor) table(ctx context.Context, db *sql.DB, t *table.Table) {
	if t.LogOnly() {
		return // there may be no rows, and it is not read
	}
	values, err := query.CheckStatusValues(ctx, db, t)
	switch {
	case server.LockWait(err): // each further statement would wait as long, and a start waits for no table
		d.add(server.NotChecked, t.Name(), "", "another session has locked it: its rows, and how the sweep looks for them")
		return
	case err != nil:
		d.add(server.Fault, t.Name(), "", "its status values cannot be read: %v", err)
	}
	if plan, err := store.ExplainSweep(ctx, db, t); err != nil {
		d.add(server.Warning, t.Name(), "", "not checked how the sweep looks for rows: %v", err)
	} else {
		d.findings = append(d.findings, d.advised(plan, "idx_outbox_sweep"))
	}
	d.findings = append(d.findings, values...)
	d.again(t)
	if clock, err := query.CheckClock(ctx, db, t); err != nil {
		d.add(server.Warning, t.Name(), "", "the time of its newest row could not be read: %v", err)
	} else {
		d.findings = append(d.findings, clock)
	}
	d.failedLog(ctx, db, t)
	schema, name, _ := strings.Cut(t.Name(), ".")
	topic := "NULL"
	if column := t.ColumnName(table.Topic); column != "" {
		topic = server.QuoteName(column)
	}
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT topic, MAX(LENGTH(body)) FROM "+
		"(SELECT %s AS topic, %s AS body FROM %s.%s ORDER BY %s DESC LIMIT %d) AS recent GROUP BY topic",
		topic, server.QuoteName(t.ColumnName(table.Body)),
		server.QuoteName(schema), server.QuoteName(name), server.QuoteName(t.ColumnName(table.ID)), recentRows))
	if err != nil {
		d.add(server.Fault, t.Name(), "", "its newest rows cannot be read: %v", err)
		return
	}
	if err := errors.Join(d.readRecent(t, rows), rows.Close()); err != nil {
		d.add(server.Fault, t.Name(), "", "its newest rows cannot be read: %v", err)
	}
}

// advised refers a finding to an earlier statement that makes the same index.
func (d *doctor) advised(f server.Finding, index string) server.Finding {
	if slices.ContainsFunc(d.findings, func(other server.Finding) bool {
		return strings.HasPrefix(other.Subject, f.Subject) && strings.Contains(f.SQL, index) && strings.Contains(other.SQL, index)
	}) {
		f.Fix, f.SQL = "the ALTER TABLE of "+f.Subject+" above", ""
	}
	return f
}

// failedLog reports whether messages can be discarded, if the table for it exists. Where expired rows move there, that is checked
// already.
func (d *doctor) failedLog(ctx context.Context, db *sql.DB, t *table.Table) {
	if slices.ContainsFunc(t.Expiries(), func(e table.Expiry) bool { return e.Into == table.FailedSuffix }) {
		return
	}
	findings, exists, err := store.CheckFailedLog(ctx, db, t)
	switch {
	case err != nil:
		d.add(server.Warning, t.Name(), "", "not checked whether messages can be discarded: %v", err)
	case exists:
		d.findings = append(d.findings, findings...)
	}
}

func (d *doctor) readRecent(t *table.Table, rows *sql.Rows) error {
	for rows.Next() {
		var value sql.RawBytes
		var size sql.NullInt64
		if err := rows.Scan(&value, &size); err != nil {
			return err
		}
		topic := t.Topic(value)
		if _, seen := d.largest[topic]; !seen && topic != "" {
			d.topics = append(d.topics, topic)
		}
		d.largest[topic] = max(d.largest[topic], size.Int64)
	}
	return rows.Err()
}
