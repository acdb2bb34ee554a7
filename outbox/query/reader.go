// Package query answers what people ask about the rows of mapped tables: list, find and show messages, count them, group them, and read the rows of a span
// of time.
//
// Guarantee: it reads only, in statements that lock nothing; what would read many rows is refused with the reason unless the caller allows it. The
// package starts no goroutine; each method of Reader may be called from several.
package query

import (
	"database/sql"
	"fmt"
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Reader runs the queries on all mapped tables. Each method may be called from several goroutines.
type Reader struct {
	db     *sql.DB
	tables []*mapped
	byName map[string]*mapped
	waits  table.Waits

	maxCount  int64 // table.MaxCount
	scanLimit int64 // scanLimit
	pages     pages

	mu    sync.Mutex
	ahead map[string]firstSeen // by table, for the age of rows that were made ahead of the clock
}

// mapped is a table with its queries.
type mapped struct{ *table.Table }

// New makes a Reader of the tables that have a status: there are no queries on the others. db may be a pool of a replica. waits are those of the
// Store; nil where there are none.
func New(db *sql.DB, tables []*table.Table, waits table.Waits) *Reader {
	if waits == nil {
		waits = &table.WaitMap{}
	}
	s := &Reader{db: db, waits: waits, byName: map[string]*mapped{}, maxCount: table.MaxCount, scanLimit: scanLimit, pages: defaultPages, ahead: map[string]firstSeen{}}
	for _, one := range table.WithStatus(tables) {
		t := &mapped{one}
		s.tables, s.byName[t.Name()] = append(s.tables, t), t
	}
	return s
}

func (s *Reader) table(name string) (*mapped, error) {
	t := s.byName[name]
	if t == nil {
		return nil, fmt.Errorf("table %s is not mapped: add it under tables[] of the configuration", name)
	}
	return t, nil
}

// byIndex asks a table, and once more when the index that was forced is gone; does says what was asked.
func byIndex[T any](s *Reader, name, does string, ask func(*mapped) (T, error)) (answer T, err error) {
	t, err := s.table(name)
	if err != nil {
		return answer, err
	}
	answer, err = ask(t)
	if t.ForgetIndex(err) {
		answer, err = ask(t)
	}
	if err != nil {
		err = fmt.Errorf("%s rows of %s: %w", does, name, err)
	}
	return answer, err
}
