package canal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// outboxTable is what the reader needs from a mapped table; *table.Table implements it.
type outboxTable interface {
	Name() string                                   // schema.table
	Reads() []table.Column                          // the columns that a message is built from
	ColumnName(table.Column) string                 // in the database
	Message([]table.Value) (*outbox.Message, error) // values aligned with Reads
	LogOnly() bool                                  // it has no status: its rows cannot be left to a sweep
}

// mapped is a mapped table and how to read its rows at this position of the log.
type mapped struct {
	name   string // schema.table
	table  string // without the schema
	source outboxTable
	only   bool     // source.LogOnly
	wanted []string // column names, aligned with source.Reads

	plan   *columnPlan
	body   []byte // the table map of plan
	values []table.Value
	buffer row
	rows   int // of the last insert event: the next one often has as many

	faults *faultLog
}

// tableSet finds tables by the identity in table maps and statements.
type tableSet struct {
	byName  map[string]*mapped
	list    []*mapped
	fold    bool // lower_case_table_names is not 0: names differ in letter case
	key     []byte
	schemas *schemaVersions
}

func newTableSet[S outboxTable](tables []S, log *zap.Logger) *tableSet {
	r := &tableSet{byName: map[string]*mapped{}, schemas: &schemaVersions{}}
	for _, source := range tables {
		_, bare, _ := strings.Cut(source.Name(), ".")
		t := &mapped{name: source.Name(), table: bare, source: source, only: source.LogOnly(), faults: &faultLog{log: log, only: source.LogOnly()}}
		for _, column := range source.Reads() {
			t.wanted = append(t.wanted, source.ColumnName(column))
		}
		t.values = make([]table.Value, len(t.wanted))
		t.buffer = row{values: t.values}
		r.list = append(r.list, t)
	}
	r.setFold(false)
	return r
}

// setFold follows the server's rule for table names (A27). Tables without a mapping are ignored: also the shadow tables of online
// schema changes and tables of the same name in other schemas.
func (r *tableSet) setFold(fold bool) {
	r.fold = fold
	clear(r.byName)
	for _, t := range r.list {
		name := t.name
		if fold {
			name = strings.ToLower(name)
		}
		r.byName[name] = t
	}
}

// find allocates nothing: most events of a log are about other tables.
func (r *tableSet) find(schema, name []byte) *mapped {
	r.key = append(append(append(r.key[:0], schema...), '.'), name...)
	if r.fold {
		return r.byName[strings.ToLower(string(r.key))]
	}
	return r.byName[string(r.key)]
}

// observe takes a table map that ends at a position. It makes a new plan only when the map differs from the previous one.
func (r *tableSet) observe(tm *replication.TableMapEvent, body []byte, at outbox.Position) {
	t := r.find(tm.Schema, tm.Table)
	if t == nil || bytes.Equal(t.body, body) {
		return
	}
	t.plan = r.makePlan(t, tm, body, at)
	t.body = bytes.Clone(body) // it may be part of a large payload
	if t.plan.fault != "" {
		t.body = nil // it may be corrected by the next time
		t.faults.report(t.name, t.plan.fault)
	}
}

func (r *tableSet) makePlan(t *mapped, tm *replication.TableMapEvent, body []byte, at outbox.Position) *columnPlan {
	optional, err := optionalMetadata(body, tm)
	if err != nil {
		return &columnPlan{fault: err.Error()}
	}
	m, err := parseMetadata(optional)
	if err != nil {
		return &columnPlan{fault: err.Error()}
	}
	if infos := infosFromMetadata(tm, &m); infos != nil {
		return newColumnPlan(tm, infos, t.wanted)
	}
	return r.schemas.makePlan(t, tm, at)
}

// named lists the tables in a statement's text. Unless the statement only changes rows it may be DDL: the plans of these tables
// end here, and if it takes effect here their definitions are followed.
func (r *tableSet) named(q *replication.QueryEvent, at outbox.Position, effective bool) (out []*mapped, err error) {
	ddl := !changesRowsOnly(q.Query)
	for _, t := range r.list {
		if !names(q.Query, t.table) {
			continue
		}
		out = append(out, t)
		if ddl {
			t.forget()
		}
	}
	if ddl && effective && r.schemas.follows() {
		err = r.schemas.follow(q, at)
	}
	return out, err
}

// forget ends every plan, because part of the log was not read.
func (r *tableSet) forget() error {
	for _, t := range r.list {
		t.forget()
	}
	return r.schemas.forget()
}

func (t *mapped) forget() { t.plan, t.body = nil, nil }

// holds reports whether the plan is valid for rows at this position.
func (t *mapped) holds(at outbox.Position) bool {
	return t.plan.from.IsZero() || at.Compare(t.plan.from) >= 0
}

// row returns the collector for one row, with all columns absent.
func (t *mapped) row() *row {
	for i := range t.values {
		t.values[i] = table.Value{Absent: true}
	}
	t.buffer.scratch = t.buffer.scratch[:0]
	return &t.buffer
}

// refused reports why a row could not be mapped.
func (t *mapped) refused(err error) { t.faults.report(t.name, err.Error()) }

// faultLog writes each reason once, so that a table that cannot be mapped does not flood the log.
type faultLog struct {
	log  *zap.Logger
	only bool // the table has no status
	seen []string
}

const maxFaults = 32

func (f *faultLog) report(name, fault string) {
	if len(f.seen) >= maxFaults || slices.Contains(f.seen, fault) {
		return
	}
	f.seen = append(f.seen, fault)
	what := "rows cannot be read from the binlog and are left to the sweep"
	if f.only {
		what = "rows cannot be read from the binlog, and no sweep would find them"
	}
	f.log.Warn(what, zap.String("table", name), zap.String("reason", fault))
}
