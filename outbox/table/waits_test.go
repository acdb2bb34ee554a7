package table

import (
	"fmt"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

func waiting(n int, due time.Time) Waiting {
	return Waiting{outbox.Identity{Table: "a.b", ID: fmt.Sprint(n), MessageID: "m"}, Wait{Due: due, Attempts: n}}
}

// The oldest waits go when there are too many, and those of rows that are gone go a day after their time.
func TestWaitsAreBounded(t *testing.T) {
	now := time.Now()
	m := WaitMap{limit: 3}
	m.Change([]Waiting{waiting(1, now.Add(time.Hour)), waiting(2, now.Add(time.Hour)), waiting(3, now.Add(-23*time.Hour))}, nil, now)
	m.Change([]Waiting{waiting(1, now.Add(2*time.Hour))}, nil, now) // now the newest
	gone := m.Change([]Waiting{waiting(4, now.Add(time.Hour))}, nil, now)
	if len(gone) != 1 || gone[0].ID != "2" {
		t.Errorf("gone: %v", gone)
	}
	if n, longest := m.Waiting("a.b", now); n != 2 || longest != 2*time.Hour {
		t.Errorf("%d rows wait, at most %v", n, longest)
	}
	if n, _ := m.Waiting("a.c", now); n != 0 {
		t.Errorf("%d rows of another table wait", n)
	}
	if gone = m.Change(nil, nil, now.Add(waitsPrune)); len(gone) != 0 {
		t.Errorf("gone before their time: %v", gone)
	}
	gone = m.Change(nil, nil, now.Add(2*time.Hour))
	if len(gone) != 1 || gone[0].ID != "3" {
		t.Errorf("gone: %v", gone)
	}
	one := waiting(1, now).Identity
	if w, ok := m.Wait(one); !ok || w.Attempts != 1 || !w.Due.Equal(now.Add(2*time.Hour)) {
		t.Errorf("%+v, %v", w, ok)
	}
	if gone = m.Change(nil, []outbox.Identity{one, {ID: "none"}}, now); len(gone) != 1 || gone[0] != one {
		t.Errorf("gone: %v", gone)
	}
	if _, ok := m.Wait(one); ok {
		t.Error("a wait that was dropped is there")
	}
}
