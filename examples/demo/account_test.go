package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// row is a message as the application writes it; record is the same as a consumer gets it, with an addition in its body.
func row(id string) []relay.Row { return []relay.Row{{MessageID: id, Loose: true, Body: []byte(id)}} }

func record(id, change string) []relay.Record {
	return []relay.Record{{MessageID: id, Body: []byte(id + change), Stored: time.Now()}}
}

// sides is a book with the records that it was given, as the topic has them.
type sides struct {
	*book
	topic []relay.Record
}

func newSides() *sides { return &sides{book: newBook()} }

func (l *sides) Arrived(records []relay.Record) {
	l.book.Arrived(records)
	l.topic = append(l.topic, records...)
}

// pair records one message on both sides, with a number of copies.
func pair(l *sides, id string, copies int) {
	l.Committed(row(id), time.Now())
	for range copies {
		l.Arrived(record(id, ""))
	}
}

// settled returns the account of a ledger whose rows are all SENT, and whose purge was recorded.
func settled(t *testing.T, l *sides, inTable func(context.Context, string) (bool, error)) Account {
	t.Helper()
	if inTable == nil {
		inTable = func(context.Context, string) (bool, error) { return false, errors.New("must not be called") }
	}
	a, err := l.Account(t.Context(), l.topic, inTable)
	testkit.Must(t, err)
	a.Rows, a.GapWanted, a.Gaps = map[string]int{sentStatus: a.Committed}, true, map[string]int{"first_start": 1, "purged": 1}
	return a
}

// wrong checks that the account fails with this text.
func wrong(t *testing.T, a Account, want string) {
	t.Helper()
	if err := a.Err(); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("the account says %v, want %q", err, want)
	}
}

func TestAccountHolds(t *testing.T) {
	l := newSides()
	pair(l, "a:1", 1)
	// The record arrives before the COMMIT is acknowledged.
	l.Arrived(record("a:2", ""))
	l.Committed(row("a:2"), time.Now())
	l.RolledBack()
	a := settled(t, l, nil)
	testkit.Must(t, a.Err())
	if a.Committed != 2 || a.Published != 2 || a.Copies != 0 || a.RolledBack != 1 || l.Waiting(time.Now()) != 0 {
		t.Fatalf("%+v", a)
	}
}

func TestAccountAllowsCopies(t *testing.T) {
	l := newSides()
	pair(l, "a:1", 3)
	pair(l, "a:2", 1)
	a := settled(t, l, nil)
	if err := a.Err(); err != nil || a.Copies != 2 || a.Published != 2 || l.Copies() != 2 {
		t.Fatalf("%v, %+v", err, a)
	}
}

func TestAccountMissing(t *testing.T) {
	l := newSides()
	for i := range 13 {
		pair(l, fmt.Sprintf("a:%02d", i), i%2)
	}
	a := settled(t, l, nil)
	wrong(t, a, "7 committed but not published: a:00, a:02, a:04")
	if l.Waiting(time.Now().Add(time.Second)) != 7 || l.Waiting(time.Now().Add(-time.Hour)) != 0 {
		t.Fatal("the ledger does not wait for the missing ones")
	}
}

func TestAccountInvented(t *testing.T) {
	l := newSides()
	pair(l, "a:1", 1)
	l.Arrived(record("rolled-back:9", ""))
	wrong(t, settled(t, l, nil), "1 published but never committed: rolled-back:9")
}

func TestAccountAltered(t *testing.T) {
	for name, changes := range map[string][]string{"first": {"x"}, "a later copy": {"", "x"}, "the first of two": {"x", ""}} {
		t.Run(name, func(t *testing.T) {
			l := newSides()
			l.Committed(row("a:1"), time.Now())
			for _, change := range changes {
				l.Arrived(record("a:1", change))
			}
			wrong(t, settled(t, l, nil), "1 published with another content than committed: a:1")
		})
	}
}

// A commit without an answer counts as the database reports it.
func TestAccountUncertain(t *testing.T) {
	for _, there := range []bool{false, true} {
		for _, arrived := range []bool{false, true} {
			l := newSides()
			pair(l, "a:1", 1)
			l.Uncertain(row("a:2"))
			if arrived {
				l.Arrived(record("a:2", ""))
			}
			a := settled(t, l, func(_ context.Context, id string) (bool, error) { return there && id == "a:2", nil })
			if err := a.Err(); (err == nil) != (there == arrived) {
				t.Errorf("in the table: %v, arrived: %v: the account says %v", there, arrived, err)
			}
		}
	}
}

func TestAccountUncertainWithoutDatabase(t *testing.T) {
	l := newSides()
	l.Uncertain(row("a:1"))
	gone := errors.New("connection refused")
	if _, err := l.Account(t.Context(), nil, func(context.Context, string) (bool, error) { return false, gone }); !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
}

func TestAccountOfTheTable(t *testing.T) {
	l := newSides()
	pair(l, "a:1", 1)
	good := settled(t, l, nil)

	unsent := good
	unsent.Unsent = []string{"a:1 (FAILED) too large"}
	wrong(t, unsent, "1 rows not SENT: a:1 (FAILED) too large")

	lost := good
	lost.Rows = map[string]int{sentStatus: 2}
	wrong(t, lost, "the table holds 2 rows, the application committed 1")

	noGap := good
	noGap.Gaps = map[string]int{"first_start": 1}
	wrong(t, noGap, "not among the recorded gaps (first_start)")
	noGap.GapWanted = false
	testkit.Must(t, noGap.Err())

	failed := good
	failed.Failures = []error{errors.New("deadlock found")}
	wrong(t, failed, "1 business transactions failed, the first with: deadlock found")

	wrong(t, Account{}, "the application committed nothing")
}

func TestLatencies(t *testing.T) {
	l := newSides()
	at := time.Now()
	for i := range 100 {
		one := record(fmt.Sprint(i), "")
		one[0].Stored = at.Add(time.Duration(i+1) * time.Millisecond)
		l.Committed(row(fmt.Sprint(i)), at)
		if i == 50 {
			l.Disturb()
		}
		l.Arrived(one)
	}
	_, published, took := l.Look()
	if p50, p99 := took.at(0.5), took.at(0.99); p50 != "51ms" || p99 != "100ms" || published != 100 {
		t.Errorf("p50 %s, p99 %s of %d", p50, p99, published)
	}
	if quiet := l.Quiet(); len(quiet) != 50 {
		t.Errorf("%d samples before the disturbance, want 50", len(quiet))
	}
	if _, published, took := l.Look(); took.at(0.5) != "-" || published != 100 {
		t.Errorf("the second look shows %v of %d", took, published)
	}
}
