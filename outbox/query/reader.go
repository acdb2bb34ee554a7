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

// Reader runs the queries on all mapped tables. Each method may be called from several goroutines. Its parts share the tables.
type Reader struct {
	*tables
	counter // samples and groups
	lister  // lists, and rows by a name
	spans   // all rows of a span of time
}

type (
	counter struct{ *tables }
	lister  struct{ *tables }
	spans   struct{ *tables }
)

// tables are the mapped tables and the way to their server.
type tables struct {
	db     *sql.DB
	bound  []*mapped
	byName map[string]*mapped
	waits  table.Waits

	maxCount  int64 // table.MaxCount
	scanLimit int64 // scanLimit
	pages     pages

	mu    sync.Mutex
	ahead map[string]firstSeen // by table, for the age of rows that were made ahead of the clock
}

// mapped is a table with its queries. It has many methods because each writes one query or one condition; none keeps anything.
type mapped struct{ *table.Table }

// New makes a Reader of the tables that have a status: there are no queries on the others. db may be a pool of a replica. waits are those of the
// Store; nil where there are none.
func New(db *sql.DB, of []*table.Table, waits table.Waits) *Reader {
	if waits == nil {
		waits = &table.WaitMap{}
	}
	s := &tables{db: db, waits: waits, byName: map[string]*mapped{}, maxCount: table.MaxCount, scanLimit: scanLimit, pages: defaultPages, ahead: map[string]firstSeen{}}
	for _, one := range table.WithStatus(of) {
		t := &mapped{one}
		s.bound, s.byName[t.Name()] = append(s.bound, t), t
	}
	return &Reader{s, counter{s}, lister{s}, spans{s}}
}

func (s *tables) table(name string) (*mapped, error) {
	t := s.byName[name]
	if t == nil {
		return nil, fmt.Errorf("table %s is not mapped: add it under tables[] of the configuration", name)
	}
	return t, nil
}

// byIndex asks a table, and once more when the index that was forced is gone; does says what was asked.
func byIndex[T any](s *tables, name, does string, ask func(*mapped) (T, error)) (answer T, err error) {
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
