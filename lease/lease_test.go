package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func nodes(m *model, holders ...string) (all []*node) {
	for _, h := range holders {
		all = append(all, &node{way: &way{model: m, delay: time.Millisecond}, holder: h, tables: []string{"shop.t"}})
	}
	return all
}

// until returns the time until a node may publish.
func until(t *testing.T, n *node) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if n.valid() {
			return time.Since(began)
		}
		if time.Since(began) > 10*leaseTime {
			t.Fatal("it never may")
		}
	}
}

func (n *node) state() State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lease.State()
}

// The duration of a take-over: within two lease times when the holder dies, at once when it stops in order, and at once when the
// same directory starts again. A relay that comes back is a standby.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(newModel(), "first", "second")
		first, second := all[0], all[1]
		first.start()
		until(t, first)
		second.start()
		time.Sleep(leaseTime)
		if s := second.state(); s.Mode != Standby || s.Holder != "first" || s.Error != "" {
			t.Errorf("the second one is %+v", s)
		}

		first.end(false)
		if d := until(t, second); d > 2*leaseTime || d < leaseTime/2 {
			t.Errorf("taken over %v after the holder died", d)
		}
		first.start()
		time.Sleep(5 * leaseTime)
		if first.valid() || !second.valid() {
			t.Error("the relay that came back took the lease away")
		}

		second.end(true)
		if d := until(t, first); d > time.Second+10*time.Millisecond {
			t.Errorf("taken over %v after the holder ended in order", d)
		}

		first.end(false)
		first.start()
		if d := until(t, first); d > 10*time.Millisecond {
			t.Errorf("the same directory waited %v for itself", d)
		}
		first.end(false)
	})
}

// A holder without a connection to its database stops before its lease ends, and continues when no other relay took it over.
func TestAHolderStopsByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(newModel(), "only")[0]
		n.start()
		until(t, n)
		time.Sleep(3 * leaseTime)
		n.way.set(true, 0)
		cut := time.Now()
		for n.valid() {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(cut); d > leaseTime-leaseTime/protocol.Margin {
			t.Errorf("it published for %v without a word of the database", d)
		}
		time.Sleep(leaseTime)
		if s := n.state(); s.Mode != Lapsed || s.Error == "" || s.Left != 0 {
			t.Errorf("it is %+v", s)
		}
		n.way.set(false, time.Millisecond)
		until(t, n)
		if s := n.state(); s.Mode != Active || s.Term != 2 {
			t.Errorf("afterwards it is %+v", s)
		}
		n.end(false)
	})
}

// The volume of a machine without network is mounted by another one: the lock that proves the holder's end is not on that
// machine.
func TestTheSameDirectoryOfAnotherMachineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(newModel(), "same", "same")
		old, next := all[0], all[1]
		old.boot, next.boot = "one", "two"
		old.start()
		until(t, old)
		time.Sleep(leaseTime)
		old.way.set(true, 0)
		next.start()
		for !next.valid() {
			time.Sleep(time.Millisecond)
			if old.valid() && next.valid() {
				t.Fatal("two may publish")
			}
		}
		old.end(false)
		next.end(false)
	})
}

// A copy of a state directory takes the lease once, and then the two do not take it from each other.
func TestACopyOfADirectoryDoesNotPlayPingPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		all := nodes(m, "same", "same")
		for _, n := range all {
			n.start()
			until(t, n)
		}
		time.Sleep(20 * leaseTime)
		m.mu.Lock()
		term := m.table.Newest
		m.mu.Unlock()
		if term != 3 {
			t.Errorf("term %d", term)
		}
		for _, n := range all {
			n.end(false)
		}
	})
}

// The next relay starts from the position that another directory left; it ignores what its own directory left, because the
// directory has newer data.
func TestThePositionGoesWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(newModel(), "first", "second")
		for _, n := range all {
			n.start()
			until(t, n)
			time.Sleep(leaseTime)
			n.end(true)
		}
		acquire := func(holder string, ready error) (l *Lease, left *Resume, held bool) {
			l = New(Config{Time: leaseTime, Holder: holder}, all[1].way, zap.NewNop())
			_, held = l.Acquire(t.Context(), []string{"shop.t"}, func(_ context.Context, at Resume) error {
				left = &at
				return ready
			})
			return l, left, held
		}
		l, left, held := acquire("second", nil)
		if !held || left != nil {
			t.Errorf("the same directory begins at %v", left)
		}
		_ = l.Release(t.Context(), Resume{})
		if _, _, held = acquire("third", errors.New("a full disk")); held {
			t.Error("a directory that cannot keep the position has the lease")
		}
		if _, left, held = acquire("third", nil); !held || left == nil || left.At.Offset != 3 || left.Pause != nil {
			t.Errorf("another directory begins at %v", left)
		}
	})
}

// A pause is passed on with the lease as soon as Renew has written it, also from a relay that dies; the directory that held the
// lease before uses its own record. A released lease is not renewed.
func TestThePauseGoesWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows, tables := nodes(newModel(), "first")[0].way, []string{"shop.t"}
		var left *Resume
		inherit := func(_ context.Context, from Resume) error {
			left = &from
			return nil
		}
		lease := func(holder string) (*Lease, *Grant) {
			left = nil
			l := New(Config{Time: leaseTime, Holder: holder}, rows, zap.NewNop())
			g, _ := l.Acquire(t.Context(), tables, inherit)
			return l, g
		}
		pause := &outbox.Pause{By: "operator"}
		paused := func() Resume { return Resume{Pause: pause} }
		_, g := lease("first")
		testkit.Must(t, g.Renew(t.Context(), paused))
		l, _ := lease("second")
		if s := l.State(); s.Mode != Standby || s.Paused != pause {
			t.Fatalf("the standby has %+v", s)
		}
		time.Sleep(leaseTime)
		g, _ = l.Acquire(t.Context(), tables, inherit)
		if g == nil || left == nil || left.Pause != pause {
			t.Fatalf("the pause was lost: %+v, %+v", g, left)
		}
		testkit.Must(t, l.Release(t.Context(), Resume{}))
		if err := g.Renew(t.Context(), paused); !errors.Is(err, ErrLost) || g.Valid() {
			t.Errorf("renewed after the release: %v", err)
		}
		if _, g = lease("second"); g == nil || left != nil {
			t.Errorf("the same directory gets a pause: %+v", left)
		}
	})
}

func TestInherit(t *testing.T) {
	one, other := server.ID{UUID: "1"}, server.ID{UUID: "2"}
	at := func(id server.ID, offset uint64) Resume {
		return Resume{Source: id, At: outbox.Position{File: "log.1", Offset: offset}}
	}
	l := New(Config{Holder: "own"}, newModel(), zap.NewNop())
	for name, c := range map[string]struct {
		from   []Record
		want   Resume
		theirs bool
	}{
		"nothing":        {},
		"no position":    {from: []Record{{Holder: "a"}}},
		"own":            {from: []Record{{Holder: "own", Resume: at(one, 5)}}, want: at(one, 5)},
		"other":          {from: []Record{{Holder: "a", Resume: at(one, 5)}}, want: at(one, 5), theirs: true},
		"the lowest":     {from: []Record{{Holder: "a", Resume: at(one, 5)}, {Holder: "b", Resume: at(one, 3)}}, want: at(one, 3), theirs: true},
		"own before":     {from: []Record{{Holder: "own", Resume: at(one, 5)}, {Holder: "b", Resume: at(one, 7)}}, want: at(one, 7), theirs: true},
		"another source": {from: []Record{{Holder: "a", Resume: at(one, 5)}, {Holder: "b", Resume: at(other, 3)}}, want: at(one, 5), theirs: true},
	} {
		if got, theirs := l.inherit(c.from); got != c.want || theirs != c.theirs {
			t.Errorf("%s: %v, theirs %v", name, got, theirs)
		}
	}
}

// A relay without a lease may always publish, and reports that.
func TestAlone(t *testing.T) {
	l := Alone(Solo, "there is no table")
	g, held := l.Acquire(t.Context(), []string{"shop.t"}, nil)
	if !held || !g.Valid() {
		t.Error("it may not publish")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Keep(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context(), Resume{}); err != nil {
		t.Error(err)
	}
	reg := prometheus.NewRegistry()
	l.Register(reg)
	series, err := reg.Gather()
	if err != nil || len(series) != 6 {
		t.Errorf("%d families, %v", len(series), err)
	}
	if s := l.State(); s.Mode != Solo || s.Error != "there is no table" {
		t.Errorf("%+v", s)
	}
}

func BenchmarkValid(b *testing.B) {
	l := New(Config{Time: time.Hour}, newModel(), zap.NewNop())
	g := l.begin(protocol.Held{Time: time.Hour}, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		if !g.Valid() {
			b.Fatal("it has ended")
		}
	}
}

// The holder's own end is before that of the row, however long statements take: it counts from the time before they were sent.
func TestTheFenceIsBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		n := nodes(m, "only")[0]
		n.way.set(false, 1600*time.Millisecond)
		n.start()
		until(t, n)
		for range 6000 {
			n.mu.Lock()
			g := n.grants[0]
			n.mu.Unlock()
			m.mu.Lock()
			own, ends := *g.until.Load(), m.table.Rows[len(m.table.Rows)-1].Until
			m.mu.Unlock()
			if ends.Sub(own) < leaseTime/protocol.Margin {
				t.Fatalf("it publishes until %v, the lease ends at %v", own, ends)
			}
			time.Sleep(10 * time.Millisecond)
		}
		n.end(false)
	})
}

// A holder whose row is gone may not publish from the time when a renewal reports it, before anything else ends the relay.
func TestHolderWhoseRowIsGoneStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		l := New(Config{Time: leaseTime, Holder: "first"}, nodes(m, "first")[0].way, zap.NewNop())
		g, _ := l.Acquire(t.Context(), []string{"shop.t"}, func(context.Context, Resume) error { return nil })
		if !g.Valid() {
			t.Fatal("it has no lease")
		}
		m.mu.Lock()
		m.table.Rows = nil
		m.mu.Unlock()
		if err := g.Renew(t.Context(), func() Resume { return Resume{} }); !errors.Is(err, ErrLost) || g.Valid() {
			t.Errorf("renewed without a row: %v, valid %v", err, g.Valid())
		}
	})
}
