package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// row is a message as the application writes it; record is the same as a consumer gets it, with an addition in its body.
func row(id string) []relay.Row { return []relay.Row{{MessageID: id, Loose: true, Body: []byte(id)}} }

func record(id, change string) []arrival {
	return []arrival{{Record: relay.Record{MessageID: id, Body: []byte(id + change)}, at: time.Now()}}
}

// pair records one message on both sides, with a number of copies.
func pair(l *book, id string, copies int) {
	l.Committed(row(id), time.Now())
	for range copies {
		l.Arrived(record(id, ""))
	}
}

// settled returns the account of a ledger whose rows are all SENT, and whose purge was recorded.
func settled(t *testing.T, l *book, inTable func(context.Context, string) (bool, error)) Account {
	t.Helper()
	if inTable == nil {
		inTable = func(context.Context, string) (bool, error) { return false, errors.New("must not be called") }
	}
	a, err := l.Account(t.Context(), inTable)
	if err != nil {
		t.Fatal(err)
	}
	a.Rows, a.GapWanted, a.Gaps = map[string]int{sentStatus: a.Committed}, true, []string{"first_start", "purged"}
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
	l := newBook()
	pair(l, "a:1", 1)
	// The record arrives before the COMMIT is acknowledged.
	l.Arrived(record("a:2", ""))
	l.Committed(row("a:2"), time.Now())
	l.RolledBack()
	a := settled(t, l, nil)
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	if a.Committed != 2 || a.Published != 2 || a.Copies != 0 || a.RolledBack != 1 || l.Waiting(time.Now()) != 0 {
		t.Fatalf("%+v", a)
	}
}

func TestAccountAllowsCopies(t *testing.T) {
	l := newBook()
	pair(l, "a:1", 3)
	pair(l, "a:2", 1)
	a := settled(t, l, nil)
	if err := a.Err(); err != nil || a.Copies != 2 || a.Published != 2 || l.Copies() != 2 {
		t.Fatalf("%v, %+v", err, a)
	}
}

func TestAccountMissing(t *testing.T) {
	l := newBook()
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
	l := newBook()
	pair(l, "a:1", 1)
	l.Arrived(record("rolled-back:9", ""))
	wrong(t, settled(t, l, nil), "1 published but never committed: rolled-back:9")
}

func TestAccountAltered(t *testing.T) {
	for name, changes := range map[string][]string{"first": {"x"}, "a later copy": {"", "x"}, "the first of two": {"x", ""}} {
		t.Run(name, func(t *testing.T) {
			l := newBook()
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
			l := newBook()
			pair(l, "a:1", 1)
			l.Uncertain(row("a:2"), time.Now())
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
	l := newBook()
	l.Uncertain(row("a:1"), time.Now())
	gone := errors.New("connection refused")
	if _, err := l.Account(t.Context(), func(context.Context, string) (bool, error) { return false, gone }); !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
}

func TestAccountOfTheTable(t *testing.T) {
	l := newBook()
	pair(l, "a:1", 1)
	good := settled(t, l, nil)

	unsent := good
	unsent.Unsent = []string{"a:1 (FAILED) too large"}
	wrong(t, unsent, "1 rows not SENT: a:1 (FAILED) too large")

	lost := good
	lost.Rows = map[string]int{sentStatus: 2}
	wrong(t, lost, "the table holds 2 rows, the application committed 1")

	noGap := good
	noGap.Gaps = []string{"first_start"}
	wrong(t, noGap, "not among the recorded gaps (first_start)")
	noGap.GapWanted = false
	if err := noGap.Err(); err != nil {
		t.Error(err)
	}

	failed := good
	failed.Failures = []error{errors.New("deadlock found")}
	wrong(t, failed, "1 business transactions failed, the first with: deadlock found")

	wrong(t, Account{}, "the application committed nothing")
}

func TestLatencies(t *testing.T) {
	l := newBook()
	at := time.Now()
	for i := range 100 {
		one := record(fmt.Sprint(i), "")
		one[0].at = at.Add(time.Duration(i+1) * time.Millisecond)
		l.Committed(row(fmt.Sprint(i)), at)
		if i == 50 {
			l.Disturb()
		}
		l.Arrived(one)
	}
	look := l.Look()
	if p50, _ := look.took.at(0.5); p50 != 51*time.Millisecond {
		t.Errorf("p50 is %v", p50)
	}
	if p99, _ := look.took.at(0.99); p99 != 100*time.Millisecond {
		t.Errorf("p99 is %v", p99)
	}
	if quiet := l.Quiet(); len(quiet) != 50 {
		t.Errorf("%d samples before the disturbance, want 50", len(quiet))
	}
	if again := l.Look(); len(again.took) != 0 || again.published != 100 {
		t.Errorf("the second look shows %+v", again)
	}
}
