package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// missingIndex is the answer to a query that names an index which is gone (KEY_DOES_NOT_EXITS).
const missingIndex = 1176

// walkRows is how many rows one page of a walk looks at.
const walkRows = 1000

// Expired looks at the next rows behind a cursor ("" is the beginning) and returns those that are expired. It sorts nothing, and reads no
// row twice within a walk.
//
// Where there is an index on the status and the creation, the walk goes by it and sees old final rows only. Otherwise it goes by
// the primary key. With an integer one the oldest rows come first: the walk ends at a page on which no row was made long enough ago,
// so that its cost follows what leaves, not what stays; rows with a low key that are made later are for the next walk, which begins at
// the beginning again. With keys in no order of time it reads the whole table.
func (s departures) Expired(ctx context.Context, name, after string, of []table.Expiry) (table.ExpiredPage, error) {
	t, err := s.table(name)
	if err != nil {
		return table.ExpiredPage{}, err
	}
	look := s.pageByKey
	if t.AgeIndex() != "" {
		look = s.pageByAge
	}
	page, err := look(ctx, t, after, of)
	if server.Code(err) == missingIndex {
		t.ForgetAgeIndex()
		page, err = s.pageByKey(ctx, t, "", of)
	}
	if err != nil {
		return table.ExpiredPage{}, fmt.Errorf("look for expired rows of %s: %w", name, err)
	}
	return page, nil
}

// ways says how a walk goes through the table.
func (t *mapped) ways() string {
	switch index := t.AgeIndex(); {
	case index != "":
		return "found by the index " + index
	case t.Type(table.ID).Kind() == table.KindInteger:
		return "found by the primary key, from the oldest row on"
	}
	return "found by reading the whole table: its keys are in no order of time, and no index has the status with the creation behind it"
}

func (s departures) pageByKey(ctx context.Context, t *mapped, after string, of []table.Expiry) (table.ExpiredPage, error) {
	page := table.ExpiredPage{IDs: make([][]string, len(of)), Next: after}
	query := t.walkByKey(after, of)
	var id sql.RawBytes
	var which, old int
	var made bool
	err := query.Each(ctx, s.db, []any{&id, &which, &made}, func() error {
		page.Next = string(t.KeyText(table.ID, id))
		if which > 0 {
			page.IDs[which-1] = append(page.IDs[which-1], page.Next)
		}
		if made {
			old++
		}
		page.Looked++
		return nil
	})
	page.Done = page.Looked < walkRows || old == 0 && t.Type(table.ID).Kind() == table.KindInteger
	return page, err
}

// walkByKey is the query of one page: for each row its key, the number of its expiry (0: none), and whether it is old enough for one.
func (t *mapped) walkByKey(after string, of []table.Expiry) *table.Statement {
	s := table.Text("SELECT ", t.Column(table.ID), ", CASE")
	youngest := of[0].Age
	for i, e := range of {
		s.Add(" WHEN ")
		t.expired(s, e)
		s.Add(" THEN ", strconv.Itoa(i+1))
		youngest = min(youngest, e.Age)
	}
	s.Add(" ELSE 0 END, ")
	t.since(s, []table.Column{table.CreatedAt, table.SentAt, table.LastExecTime, table.UpdatedAt}, youngest, "TRUE")
	s.Add(" FROM ", t.Quoted(), " FORCE INDEX (PRIMARY)")
	if after != "" {
		s.Add(" WHERE ", t.Column(table.ID), " > ")
		t.ID(s, after)
	}
	s.Add(" ORDER BY ", t.Column(table.ID), " LIMIT ", strconv.Itoa(walkRows))
	return s
}

// leaving is a part of a walk by age: the rows with one code.
type leaving struct {
	expiry int
	code   string
}

func (t *mapped) leavings(of []table.Expiry) (all []leaving) {
	for i, e := range of {
		for _, code := range t.finalCodes(e.Status) {
			all = append(all, leaving{i, code})
		}
	}
	return all
}

// ageCursor is a cursor in a walk by age: the number of the leaving, and creation and key of the last row.
type ageCursor struct {
	of       int
	made, id string
}

func (p ageCursor) String() string { return fmt.Sprintf("%d\x00%s\x00%s", p.of, p.made, p.id) }

func parseAgeCursor(text string) (p ageCursor, err error) {
	if text == "" {
		return p, nil
	}
	parts := strings.SplitN(text, "\x00", 3)
	if len(parts) != 3 {
		return p, fmt.Errorf("%q is no cursor of this walk", text)
	}
	p.made, p.id = parts[1], parts[2]
	p.of, err = strconv.Atoi(parts[0])
	return p, err
}

func (s departures) pageByAge(ctx context.Context, t *mapped, after string, of []table.Expiry) (table.ExpiredPage, error) {
	page := table.ExpiredPage{IDs: make([][]string, len(of))}
	all := t.leavings(of)
	at, err := parseAgeCursor(after)
	if err != nil || at.of >= len(all) {
		page.Done = true
		return page, err
	}
	which := all[at.of].expiry
	query := t.walkByAge(at, all[at.of], of[which])
	before := at
	var id, made sql.RawBytes
	var expired bool
	err = query.Each(ctx, s.db, []any{&id, &made, &expired}, func() error {
		at.id, at.made = string(t.KeyText(table.ID, id)), string(made)
		if expired {
			page.IDs[which] = append(page.IDs[which], at.id)
		}
		page.Looked++
		return nil
	})
	if page.Looked < walkRows || at == before { // the same cursor twice: a time of the hour that a zone has twice
		at = ageCursor{of: at.of + 1}
	}
	page.Next, page.Done = at.String(), at.of == len(all)
	return page, err
}

// walkByAge is the query of one page: key and creation of each row with a code that was made long enough ago, and whether it is expired.
func (t *mapped) walkByAge(at ageCursor, of leaving, e table.Expiry) *table.Statement {
	made := t.Column(table.CreatedAt)
	s := table.Text("SELECT ", t.Column(table.ID), ", CAST(", made, " AS CHAR), ")
	t.expired(s, e)
	s.Add(" FROM ", t.Quoted(), " FORCE INDEX (", table.Quote(t.AgeIndex()), ") WHERE ", t.Column(table.StatusCode), " = ")
	t.Literal(s, of.code)
	s.Add(" AND ")
	t.ago(s, table.CreatedAt, e.Age)
	if at.made != "" {
		t.BehindTime(s, table.CreatedAt, at.made, at.id)
	}
	s.Add(" ORDER BY ", made, ", ", t.Column(table.ID), " LIMIT ", strconv.Itoa(walkRows))
	return s
}
