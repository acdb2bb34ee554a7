package table

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Table is a mapping bound to a table that exists. It is safe for concurrent use and does not change, but for the offset
// of the server's default time zone (FollowZone) and the names of indexes that are gone. It has more than 25 methods because the packages that read the log and
// run statements have one source for what a column is and how SQL names it; each method answers one question or writes one expression.
type Table struct {
	schema   string
	name     string // schema.table
	quoted   string
	mapping  Mapping
	appendID bool                     // a derived message id ends with the primary key, because no unique index guards its columns
	guarded  bool                     // no two rows have one message id
	columns  [columnCount]*ColumnType // nil: role not used
	reads    []Column
	at       [columnCount]int // index in reads; -1
	zone     atomic.Pointer[time.Location]

	strategy   Strategy
	mariaDB    bool                   // the server is a MariaDB
	waits      bool                   // the server has no SKIP LOCKED
	sweepIndex atomic.Pointer[string] // the index the sweep's queries force; nil: the server chooses
	ageIndex   atomic.Pointer[string] // the index by which old final rows are found; nil: the primary key
}

// MariaDB reports that the server was a MariaDB when the table was loaded.
func (t *Table) MariaDB() bool { return t.mariaDB }

// Waits reports that the server had no SKIP LOCKED when the table was loaded: a statement waits for the locks of other sessions.
func (t *Table) Waits() bool { return t.waits }

// Load finds the table of a mapping and checks everything that the relay relies on. It returns all findings at once; the
// Table is nil exactly if one of them is a fault. The error is of the conversation with the server.
func Load(ctx context.Context, db *sql.DB, m Mapping) (*Table, []server.Finding, error) {
	subject := m.Schema + "." + m.Name
	var findings []server.Finding
	for _, what := range m.check() {
		findings = append(findings, server.Finding{
			Severity: server.Fault, Subject: subject, What: what,
			Fix: "map it under tables[].columns of the configuration",
		})
	}
	if findings != nil {
		return nil, findings, nil
	}
	d, err := describe(ctx, db, m)
	if err != nil {
		return nil, nil, fmt.Errorf("look at table %s: %w", subject, err)
	}
	t, findings := bind(m, d)
	if server.HasFault(findings) {
		return nil, findings, nil
	}
	return t, findings, nil
}

// LoadFrom finds the same table on another server of the same data, a replica, whose indexes are its own. An error is also whatever
// would make rows look different there.
func (t *Table) LoadFrom(ctx context.Context, db *sql.DB) (*Table, error) {
	other, findings, err := Load(ctx, db, t.mapping)
	if err != nil {
		return nil, err
	}
	for _, f := range findings {
		if f.Severity == server.Fault {
			return nil, fmt.Errorf("%s: %s", f.Subject, f.What)
		}
	}
	now := time.Now()
	_, here := now.In(t.zone.Load()).Zone()
	_, there := now.In(other.zone.Load()).Zone()
	switch {
	case other.name != t.name:
		return nil, fmt.Errorf("table %s has the name %s there", t.name, other.name)
	case here != there:
		return nil, fmt.Errorf("the default time zone of that server is another one: ages of rows of %s would be wrong; set tables[].time_zone", t.name)
	}
	other.appendID, other.guarded = t.appendID, t.guarded // message ids are the primary's
	return other, nil
}

// bind checks a mapping against a description, without I/O.
func bind(m Mapping, d description) (*Table, []server.Finding) {
	c := &check{mapping: m, description: d, subject: m.Schema + "." + m.Name}
	t := c.bind()
	c.alter()
	return t, c.findings
}

// bind returns nil when there is a fault.
func (c *check) bind() *Table {
	if !c.table() {
		return nil
	}
	d := c.description
	c.subject = d.schema + "." + d.name
	c.spell()
	t := &Table{schema: d.schema, name: c.subject, quoted: Quote(d.schema) + "." + Quote(d.name), mapping: c.mapping, mariaDB: d.mariaDB, waits: d.waits}
	for role := range columnCount {
		t.columns[role] = c.column(role)
		t.at[role] = -1
		if t.columns[role] != nil && isRead(role) {
			t.at[role] = len(t.reads)
			t.reads = append(t.reads, role)
		}
	}
	c.zone(t)
	c.charsets(t)
	if c.unbound() {
		return nil
	}
	c.keys(t)
	if t.LogOnly() {
		if c.logOnly(); server.HasFault(c.findings) {
			return nil
		}
		return t
	}
	c.findAgeIndex(t)
	c.values(t)
	c.lacks(t)
	c.redelivery(t)
	if server.HasFault(c.findings) {
		return nil
	}
	return t
}

func isRead(role Column) bool {
	switch role {
	case LastExecTime, FailReason, BrokerMessageID, SentAt, LockVersion, UpdatedBy, UpdatedAt:
		return false
	}
	return true
}

// Name is schema.table as the server writes it: Identity.Table of its rows.
func (t *Table) Name() string { return t.name }

// Retry is that of the mapping.
func (t *Table) Retry() outbox.Retry {
	r := t.mapping.Retry
	r.Endless = !t.LogOnly() && !t.Fails()
	return r
}

// Grace is that of the mapping.
func (t *Table) Grace() time.Duration { return t.mapping.Grace }

// Redeliver is that of the mapping.
func (t *Table) Redeliver() Redeliver { return t.mapping.Redeliver }

// Expiries are those of the mapping; they are shared.
func (t *Table) Expiries() []Expiry { return t.mapping.Expiries }

// FailedEvery is how long a row of the table is FAILED before it is tried again: its own wait, else the one that is given. 0 where that is
// never, or where no row can be FAILED.
func (t *Table) FailedEvery(otherwise time.Duration) time.Duration {
	if !t.Fails() {
		return 0
	}
	return cmp.Or(t.mapping.FailedEvery, otherwise)
}

// Ordered reports whether rows of one key are published one after the other.
func (t *Table) Ordered() bool { return t.mapping.Ordered }

// Schema returns the first half of Name.
func (t *Table) Schema() string { return t.schema }

// Reads lists the roles that make a message, in the order in which Message wants their values. The slice is shared.
func (t *Table) Reads() []Column { return t.reads }

// ColumnName is the column that plays a role; "" when none does.
func (t *Table) ColumnName(role Column) string {
	if t.columns[role] == nil {
		return ""
	}
	return t.columns[role].Name
}

// Type is the type of the column that plays a role; the zero value when none does.
func (t *Table) Type(role Column) ColumnType {
	if t.columns[role] == nil {
		return ColumnType{}
	}
	return *t.columns[role]
}

// Has reports whether a column plays a role.
func (t *Table) Has(role Column) bool { return t.columns[role] != nil }

// Column is the quoted name.
func (t *Table) Column(role Column) string { return Quote(t.columns[role].Name) }

// Status translates a code of the status column.
func (t *Table) Status(code []byte, null bool) outbox.Status {
	if t.LogOnly() {
		return outbox.Pending
	}
	if null {
		return outbox.Held
	}
	fold := t.columns[StatusCode].ignoresCase()
	for _, status := range statuses {
		want := t.mapping.Codes[status]
		if want != "" && (string(code) == want || fold && strings.EqualFold(string(code), want)) {
			return status
		}
	}
	return outbox.Held
}

// Roles are those that a column plays.
func (t *Table) Roles() (list []Column) {
	for role := range columnCount {
		if t.Has(role) {
			list = append(list, role)
		}
	}
	return list
}

// Mapping is what the table is bound by. It is shared.
func (t *Table) Mapping() *Mapping { return &t.mapping }

// Bare is the name without the schema.
func (t *Table) Bare() string { return t.name[len(t.schema)+1:] }

// Quoted is Name for a statement.
func (t *Table) Quoted() string { return t.quoted }

// At is the index of a role in Reads; -1 for a role that makes no message.
func (t *Table) At(role Column) int { return t.at[role] }

// AppendsID reports whether a derived message id ends with the primary key.
func (t *Table) AppendsID() bool { return t.appendID }

// NamesMessages reports whether a message id names one message: no two rows of the table have the same one, and it is no number that rows of
// other tables may have too.
func (t *Table) NamesMessages() bool {
	return t.guarded && !(t.Has(MessageID) && t.columns[MessageID].Kind() == KindInteger)
}

// ShowsUntouched reports whether a row can show that no status was ever written into it: its last_exec_time is NULL.
func (t *Table) ShowsUntouched() bool { return t.Has(LastExecTime) && t.columns[LastExecTime].Nullable }

// Zone is where the DATETIME columns are.
func (t *Table) Zone() *time.Location { return t.zone.Load() }

// FollowsZone reports whether the DATETIME columns are in the server's default time zone.
func (t *Table) FollowsZone() bool { return t.mapping.TimeZone == "" }

// FollowZone takes the server's default time zone as it is now, see server.Zone.
func (t *Table) FollowZone(zone *time.Location) { t.zone.Store(zone) }
