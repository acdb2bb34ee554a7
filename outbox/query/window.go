package query

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// pages are the rows of one statement of Rows: found by an index on the creation time, or looked at in the order of the primary
// key. Each statement ends soon, so that none holds up the server's purge of old row versions.
type pages struct{ byTime, byKey int }

var defaultPages = pages{1000, 10_000}

// ErrNoCreatedAt says that a table does not tell when its rows were made.
var ErrNoCreatedAt = errors.New("no column says when a row was made: map one under tables[].columns.created_at")

// Now is the database's clock.
func (s spans) Now(ctx context.Context) (time.Time, error) { return server.Now(ctx, s.db) }

// Rows calls each with the rows of a table that were made in [from, to), whatever their status, as the messages that the relay makes
// of them. Of a row that cannot be made a message there is the error, and in m the table alone; a row that the server cannot show ends it with an
// error, because a comparison without it would say that it is missing. pages are read one after the
// other: by an index on the creation time, where there is one, else through the whole table in the order of its primary key. An
// error of each ends it and is returned.
func (s spans) Rows(ctx context.Context, name string, from, to time.Time, each func(m *outbox.Message, fault error) error) error {
	t, err := s.table(name)
	if err != nil {
		return err
	}
	if !t.Has(table.CreatedAt) {
		return ErrNoCreatedAt
	}
	index, err := s.createdIndex(ctx, t)
	if err != nil {
		return err
	}
	w := window{table: t, pages: s.pages, from: from, to: to, index: index}
	if index == "" {
		return s.rowsByKey(ctx, &w, each)
	}
	for {
		n, err := s.windowRows(ctx, w.byTime(), &w, each)
		if err != nil || n < w.pages.byTime {
			return err
		}
	}
}

// rowsByKey looks at every row, a range of keys at a time.
func (s spans) rowsByKey(ctx context.Context, w *window, each func(*outbox.Message, error) error) error {
	for {
		upTo, err := s.rangeEnd(ctx, w)
		if err != nil {
			return err
		}
		if _, err := s.windowRows(ctx, w.byKey(upTo), w, each); err != nil || upTo == "" {
			return err
		}
		w.id = upTo
	}
}

// rangeEnd is the key at which the next range ends; "" when the table ends before.
func (s spans) rangeEnd(ctx context.Context, w *window) (string, error) {
	var last []byte
	err := w.lastKey().One(ctx, s.db, &last)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return w.keyOf(last), err
}

// createdIndex is the index that gives the rows in the order of creation and key; "" for none. Over TIMESTAMP there is no
// paging by the time: as text it comes twice in the hour in which summer time ends.
func (s spans) createdIndex(ctx context.Context, t *mapped) (string, error) {
	if t.Type(table.CreatedAt).DataType == "timestamp" {
		return "", nil
	}
	indexes, err := t.Indexes(ctx, s.db)
	if err != nil {
		return "", err
	}
	created, id := strings.ToLower(t.Type(table.CreatedAt).Name), strings.ToLower(t.Type(table.ID).Name)
	for _, i := range indexes {
		if slices.Equal(i.Columns, []string{created}) || slices.Equal(i.Columns, []string{created, id}) {
			return i.Name, nil
		}
	}
	return "", nil
}

// window is a cursor in the rows of a span of time.
type window struct {
	table    *mapped
	pages    pages
	from, to time.Time
	index    string
	created  string // of the last row, as text of the database; "" at the beginning
	id       string // its primary key
}

// selectRows begins a query of everything that makes a message.
func (w *window) selectRows(force string) *table.Statement {
	t := w.table
	s := t.SelectWhole("CAST(" + t.Column(table.CreatedAt) + " AS CHAR)")
	s.Add(" FORCE INDEX (", force, ") WHERE ", t.Column(table.CreatedAt), " >= ")
	t.timeIs(s, w.from)
	s.Add(" AND ", t.Column(table.CreatedAt), " < ")
	t.timeIs(s, w.to)
	return s
}

// byTime is the next page in the order of an index.
func (w *window) byTime() *table.Statement {
	t := w.table
	s := w.selectRows(table.Quote(w.index))
	created, id := t.Column(table.CreatedAt), t.Column(table.ID)
	if w.created != "" {
		s.Add(" AND ", created, " >= ")
		s.Arg(w.created)
		s.Add(" AND (", created, " > ")
		s.Arg(w.created)
		s.Add(" OR ", id, " > ")
		t.ID(s, w.id)
		s.Add(")")
	}
	s.Add(" ORDER BY ", created, ", ", id, " LIMIT ", strconv.Itoa(w.pages.byTime))
	return s
}

// lastKey asks for the key at which the next range ends.
func (w *window) lastKey() *table.Statement {
	t, s := w.table, &table.Statement{}
	s.Add("SELECT ", t.Column(table.ID), " FROM ", t.Quoted(), " FORCE INDEX (PRIMARY)")
	if w.id != "" {
		s.Add(" WHERE ", t.Column(table.ID), " > ")
		t.ID(s, w.id)
	}
	s.Add(" ORDER BY ", t.Column(table.ID), " LIMIT 1 OFFSET ", strconv.Itoa(w.pages.byKey-1))
	return s
}

// byKey are the rows of a range.
func (w *window) byKey(upTo string) *table.Statement {
	t := w.table
	s := w.selectRows("PRIMARY")
	if w.id != "" {
		s.Add(" AND ", t.Column(table.ID), " > ")
		t.ID(s, w.id)
	}
	if upTo != "" {
		s.Add(" AND ", t.Column(table.ID), " <= ")
		t.ID(s, upTo)
	}
	s.Add(" ORDER BY ", t.Column(table.ID))
	return s
}

func (w *window) keyOf(raw []byte) string { return string(w.table.KeyText(table.ID, raw)) }

// timeIs writes a time as a value to compare CreatedAt with.
func (t *mapped) timeIs(s *table.Statement, at time.Time) {
	zone := t.Mapping().TimeZone
	if zone == "" || t.Type(table.CreatedAt).DataType == "timestamp" {
		micros := at.UnixMicro()
		s.Add(fmt.Sprintf("FROM_UNIXTIME(%d.%06d)", micros/1e6, micros%1e6))
		return
	}
	s.Add("CONVERT_TZ('", at.UTC().Format("2006-01-02 15:04:05.000000"), "', '+00:00', '", strings.ReplaceAll(zone, "'", "''"), "')")
}

// windowRows runs a query of selectRows and moves the cursor behind its last row.
func (s spans) windowRows(ctx context.Context, query *table.Statement, w *window, each func(*outbox.Message, error) error) (n int, err error) {
	t := w.table
	whole := t.NewWholeRow(1)
	err = query.Each(ctx, s.db, whole.Into(), func() error {
		w.created, w.id = string(whole.First[0]), whole.ID()
		n++
		m, fault := t.Message(whole.Values())
		if fault != nil {
			m = &outbox.Message{Identity: outbox.Identity{Table: t.Name()}}
		}
		return each(m, fault)
	})
	return n, err
}

// CheckLookup finds a table in which HasMessages would read every row to find one.
func (s spans) CheckLookup(ctx context.Context) ([]server.Finding, error) {
	var findings []server.Finding
	for _, t := range s.bound {
		if !t.Has(table.MessageID) && t.AppendsID() {
			continue // by the primary key
		}
		indexes, err := t.Indexes(ctx, s.db)
		if err != nil {
			return nil, fmt.Errorf("look at the indexes of %s: %w", t.Name(), err)
		}
		names, columns := []string{}, []string{}
		for _, role := range t.identifies() {
			names, columns = append(names, strings.ToLower(t.Type(role).Name)), append(columns, t.Column(role))
		}
		if !slices.ContainsFunc(indexes, func(i table.Index) bool { return slices.Contains(names, i.Columns[0]) }) {
			findings = append(findings, server.Finding{
				Severity: server.Fault, Subject: t.Name(), What: "no index finds a row by its message id",
				Fix: fmt.Sprintf("CREATE INDEX idx_outbox_message ON %s (%s)", t.Quoted(), strings.Join(columns, ", ")),
			})
		}
	}
	return findings, nil
}
