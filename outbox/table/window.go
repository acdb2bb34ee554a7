package table

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
)

// pages are the rows of one statement of Rows: found by an index on the creation time, or looked at in the order of the primary
// key. Each statement ends soon, so that none holds up the server's purge of old row versions.
type pages struct{ byTime, byKey int }

var defaultPages = pages{1000, 10_000}

// ErrNoCreatedAt says that a table does not tell when its rows were made.
var ErrNoCreatedAt = errors.New("no column says when a row was made: map one under tables[].columns.created_at")

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := s.db.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros)
	return time.UnixMicro(micros), err
}

// Rows hands over the rows of a table that were made in [from, to), whatever their status, as the messages that the relay makes
// of them. Of a row that cannot be made a message there is the error, and in m the table alone; a row that the server cannot show ends it with an
// error, because a comparison without it would say that it is missing. Pages are read one after the
// other: by an index on the creation time, where there is one, else through the whole table in the order of its primary key. An
// error of each ends it and is returned.
func (s *Store) Rows(ctx context.Context, table string, from, to time.Time, each func(m *outbox.Message, fault error) error) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	if !t.has(CreatedAt) {
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

// rowsByKey looks at every row, a stretch of keys at a time.
func (s *Store) rowsByKey(ctx context.Context, w *window, each func(*outbox.Message, error) error) error {
	for {
		upTo, err := s.stretchEnd(ctx, w)
		if err != nil {
			return err
		}
		if _, err := s.windowRows(ctx, w.byKey(upTo), w, each); err != nil || upTo == "" {
			return err
		}
		w.id = upTo
	}
}

// stretchEnd is the key at which the next stretch ends; "" when the table ends before.
func (s *Store) stretchEnd(ctx context.Context, w *window) (string, error) {
	var last []byte
	err := s.scan(ctx, w.stretch(), &last)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return w.keyOf(last), err
}

// createdIndex is the index that gives the rows in the order of creation and key; "" for none. Over TIMESTAMP there is no
// paging by the time: as text it comes twice in the hour in which summer time ends.
func (s *Store) createdIndex(ctx context.Context, t *Table) (string, error) {
	if t.columns[CreatedAt].DataType == "timestamp" {
		return "", nil
	}
	indexes, err := describeIndexes(ctx, s.db, description{schema: t.schema, name: t.name[len(t.schema)+1:]})
	if err != nil {
		return "", err
	}
	created, id := strings.ToLower(t.columns[CreatedAt].Name), strings.ToLower(t.columns[ID].Name)
	for _, i := range indexes {
		if slices.Equal(i.columns, []string{created}) || slices.Equal(i.columns, []string{created, id}) {
			return i.name, nil
		}
	}
	return "", nil
}

// window is a place in the rows of a span of time.
type window struct {
	table    *Table
	pages    pages
	from, to time.Time
	index    string
	created  string // of the last row, as text of the database; "" at the beginning
	id       string // its primary key
}

// selectRows begins a query of everything that makes a message.
func (w *window) selectRows(force string) *statement {
	t, s := w.table, &statement{}
	s.add("SELECT CAST(", t.column(CreatedAt), " AS CHAR)")
	for _, role := range t.reads {
		s.add(", ", t.shown(role))
	}
	s.add(" FROM ", t.quoted, " FORCE INDEX (", force, ") WHERE ", t.column(CreatedAt), " >= ")
	t.moment(s, w.from)
	s.add(" AND ", t.column(CreatedAt), " < ")
	t.moment(s, w.to)
	return s
}

// byTime is the next page in the order of an index.
func (w *window) byTime() *statement {
	t := w.table
	s := w.selectRows(quote(w.index))
	created, id := t.column(CreatedAt), t.column(ID)
	if w.created != "" {
		s.add(" AND ", created, " >= ")
		s.string(w.created)
		s.add(" AND (", created, " > ")
		s.string(w.created)
		s.add(" OR ", id, " > ")
		t.id(s, w.id)
		s.add(")")
	}
	s.add(" ORDER BY ", created, ", ", id, " LIMIT ", strconv.Itoa(w.pages.byTime))
	return s
}

// stretch asks for the key at which the next stretch ends.
func (w *window) stretch() *statement {
	t, s := w.table, &statement{}
	s.add("SELECT ", t.column(ID), " FROM ", t.quoted, " FORCE INDEX (PRIMARY)")
	if w.id != "" {
		s.add(" WHERE ", t.column(ID), " > ")
		t.id(s, w.id)
	}
	s.add(" ORDER BY ", t.column(ID), " LIMIT 1 OFFSET ", strconv.Itoa(w.pages.byKey-1))
	return s
}

// byKey are the rows of a stretch.
func (w *window) byKey(upTo string) *statement {
	t := w.table
	s := w.selectRows("PRIMARY")
	if w.id != "" {
		s.add(" AND ", t.column(ID), " > ")
		t.id(s, w.id)
	}
	if upTo != "" {
		s.add(" AND ", t.column(ID), " <= ")
		t.id(s, upTo)
	}
	s.add(" ORDER BY ", t.column(ID))
	return s
}

func (w *window) keyOf(raw []byte) string { return string(w.table.keyText(ID, raw)) }

// moment writes a time as a value to compare CreatedAt with.
func (t *Table) moment(s *statement, at time.Time) {
	zone := t.mapping.TimeZone
	if zone == "" || t.columns[CreatedAt].DataType == "timestamp" {
		micros := at.UnixMicro()
		s.add(fmt.Sprintf("FROM_UNIXTIME(%d.%06d)", micros/1e6, micros%1e6))
		return
	}
	s.add("CONVERT_TZ('", at.UTC().Format("2006-01-02 15:04:05.000000"), "', '+00:00', '", strings.ReplaceAll(zone, "'", "''"), "')")
}

// windowRows runs a query of selectRows and moves the place behind its last row.
func (s *Store) windowRows(ctx context.Context, query *statement, w *window, each func(*outbox.Message, error) error) (n int, err error) {
	t := w.table
	rows, err := s.db.QueryContext(ctx, query.text.String(), query.args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	raw, values := make([]sql.RawBytes, len(t.reads)+1), make([]Value, len(t.reads))
	into := make([]any, len(raw))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return n, err
		}
		for i := range values {
			values[i] = Value{Data: raw[i+1], Null: raw[i+1] == nil}
		}
		w.created, w.id = string(raw[0]), w.keyOf(raw[1+t.at[ID]])
		n++
		m, fault := t.Message(values)
		if fault != nil {
			m = &outbox.Message{Identity: outbox.Identity{Table: t.name}}
		}
		if err := each(m, fault); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// CheckLookup finds a table in which HasMessages would read every row to find one.
func (s *Store) CheckLookup(ctx context.Context) ([]server.Finding, error) {
	var findings []server.Finding
	for _, t := range s.tables {
		if !t.has(MessageID) && t.appendID {
			continue // by the primary key
		}
		indexes, err := describeIndexes(ctx, s.db, description{schema: t.schema, name: t.name[len(t.schema)+1:]})
		if err != nil {
			return nil, fmt.Errorf("look at the indexes of %s: %w", t.name, err)
		}
		names, columns := []string{}, []string{}
		for _, role := range t.identifies() {
			names, columns = append(names, strings.ToLower(t.columns[role].Name)), append(columns, t.column(role))
		}
		if !slices.ContainsFunc(indexes, func(i index) bool { return slices.Contains(names, i.columns[0]) }) {
			findings = append(findings, server.Finding{
				Severity: server.Fault, Subject: t.name, What: "no index finds a row by its message id",
				Fix: fmt.Sprintf("CREATE INDEX idx_outbox_message ON %s (%s)", t.quoted, strings.Join(columns, ", ")),
			})
		}
	}
	return findings, nil
}
