package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/lease/leasetest"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// model is the lease table in memory, by a clock of its own.
type model struct {
	mu    sync.Mutex
	ahead time.Duration // of the database's clock
	table leasetest.Table
}

// newModel is a table that was in use: its last holder released it.
func newModel() *model {
	released := protocol.Record{Term: 1, Holder: "gone", Tables: []string{"shop.t", "a", "b", "c"}, Resume: Resume{Source: here}}
	return &model{table: leasetest.Table{Server: here.ServerID, Counted: true, Birth: "x", Newest: 1, Rows: []leasetest.Row{{Record: released}}}}
}

// here is the server of the model.
var here = server.ID{ServerID: 1}

func (m *model) now() time.Time { return time.Now().Add(m.ahead) }

func (m *model) Read(context.Context) (protocol.View, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.Read(m.now()), nil
}

func (m *model) Begin(_ context.Context, birth string, newest uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.Begin(birth, newest)
	return nil
}

func (m *model) Take(_ context.Context, take protocol.Take, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.Take(take, ttl, m.now())
}

func (m *model) Renew(_ context.Context, own protocol.Acquisition, at Resume, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table.Renew(own, at, ttl, m.now()), nil
}

func (m *model) Release(_ context.Context, own protocol.Acquisition, at Resume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.Release(own, at)
	return nil
}

// way is one process's connection to the database: it may be slow, break, or drop everything.
type way struct {
	*model
	mu    sync.Mutex
	cut   bool
	delay time.Duration // before the statement; the same again before the answer
}

func (w *way) set(cut bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.delay = cut, delay
}

var errCut = errors.New("no way to the database")

// pass is called for the request and for the answer. A statement whose answer is lost may have been done.
func (w *way) pass(ctx context.Context) error {
	w.mu.Lock()
	cut, delay := w.cut, w.delay
	w.mu.Unlock()
	if cut {
		<-ctx.Done()
		return errCut
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}

func (w *way) Read(ctx context.Context) (v protocol.View, err error) {
	if err = w.pass(ctx); err == nil {
		v, err = w.model.Read(ctx)
	}
	return v, errors.Join(err, w.pass(ctx))
}

func (w *way) Take(ctx context.Context, take protocol.Take, ttl time.Duration) (err error) {
	if err = w.pass(ctx); err == nil {
		err = w.model.Take(ctx, take, ttl)
	}
	if back := w.pass(ctx); back != nil {
		return back
	}
	return err
}

func (w *way) Renew(ctx context.Context, own protocol.Acquisition, at Resume, ttl time.Duration) (held bool, err error) {
	if err = w.pass(ctx); err == nil {
		held, err = w.model.Renew(ctx, own, at, ttl)
	}
	return held, errors.Join(err, w.pass(ctx))
}

// node is a state directory with a process, or without.
type node struct {
	way    *way
	holder string
	boot   string
	tables []string

	mu     sync.Mutex
	grants []*Grant // of all processes so far
	kill   context.CancelFunc
	lease  *Lease
	done   chan struct{}
}

const leaseTime = 10 * time.Second

func (n *node) start() {
	ctx, kill := context.WithCancel(context.Background())
	n.kill, n.done = kill, make(chan struct{})
	l := New(Config{Time: leaseTime, Holder: n.holder, Boot: n.boot, Host: n.holder}, n.way, zap.NewNop())
	n.mu.Lock()
	n.lease = l
	n.mu.Unlock()
	go func() {
		defer close(n.done)
		for ctx.Err() == nil {
			grant, held := l.Acquire(ctx, n.tables, func(context.Context, Resume) error { return nil })
			if !held {
				_ = l.Await(ctx, n.tables) // its error is the end of ctx
				continue
			}
			n.mu.Lock()
			n.grants = append(n.grants, grant)
			n.mu.Unlock()
			_ = grant.Keep(ctx, func() Resume { return Resume{Source: here, At: outbox.Position{File: "f", Offset: grant.Term}} }) // lost: stand by
		}
	}()
}

// end kills the process, which may not publish any more; with release it stops in order.
func (n *node) end(release bool) {
	if n.kill == nil {
		return
	}
	n.kill()
	<-n.done
	if release {
		_ = n.lease.Release(context.Background(), Resume{}) // without a connection the lease runs out
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.grants, n.kill = nil, nil
}

// valid reports whether the process may publish. One that is killed cannot.
func (n *node) valid() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.grants, (*Grant).Valid)
}

type event struct {
	Node int
	What string
	Wait time.Duration // afterwards
}

var events = []string{"kill", "release", "cut", "slow", "mend", "start", "start", "clock back", "clock ahead", "lost rows", "wait"}

// Whatever happens to processes, their connections to the database and the database's clock: of the processes whose tables
// overlap never two may publish at the same time. When everything is repaired one may.
func TestNeverTwoMayPublish(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		overlap := rapid.Bool().Draw(rt, "overlap")
		var plan []event
		for range rapid.IntRange(1, 25).Draw(rt, "events") {
			plan = append(plan, event{
				Node: rapid.IntRange(0, 2).Draw(rt, "node"), What: rapid.SampledFrom(events).Draw(rt, "what"),
				Wait: time.Duration(rapid.IntRange(0, 25_000).Draw(rt, "wait")) * time.Millisecond,
			})
		}
		var fault string
		synctest.Test(t, func(*testing.T) { fault = play(plan, overlap) })
		if fault != "" {
			rt.Fatalf("%s\n%+v", fault, plan)
		}
	})
}

func play(plan []event, overlap bool) (fault string) {
	m := newModel()
	var nodes []*node
	for i, tables := range [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}} {
		if !overlap {
			tables = []string{"a"}
		}
		nodes = append(nodes, &node{way: &way{model: m, delay: time.Millisecond}, holder: fmt.Sprint("dir", i), tables: tables})
	}
	for _, n := range nodes {
		n.start()
	}
	watch := func(d time.Duration) {
		for end := time.Now().Add(d); fault == "" && !time.Now().After(end); time.Sleep(20 * time.Millisecond) {
			var valid []string
			for _, n := range nodes {
				if n.valid() {
					valid = append(valid, n.holder)
				}
			}
			if len(valid) > 1 {
				fault = "may publish at the same time: " + strings.Join(valid, ", ")
			}
		}
	}
	for _, e := range plan {
		n := nodes[e.Node]
		switch e.What {
		case "kill", "release":
			n.end(e.What == "release")
		case "start":
			if n.kill == nil {
				n.start()
			}
		case "cut":
			n.way.set(true, 0)
		case "slow":
			n.way.set(false, 1600*time.Millisecond) // an exchange takes nearly as long as it may
		case "mend":
			n.way.set(false, time.Millisecond)
		case "lost rows":
			m.mu.Lock()
			m.table = leasetest.Table{Server: m.table.Server}
			m.mu.Unlock()
		case "clock back", "clock ahead":
			m.mu.Lock()
			if m.ahead += 30 * time.Second; e.What == "clock back" {
				m.ahead -= 2 * 30 * time.Second
			}
			m.mu.Unlock()
		}
		watch(e.Wait)
	}
	for _, n := range nodes {
		n.way.set(false, time.Millisecond)
		if n.kill == nil {
			n.start()
		}
	}
	watch(3 * leaseTime)
	if fault == "" && !slices.ContainsFunc(nodes, (*node).valid) {
		fault = "no process may publish although everything is repaired"
	}
	for _, n := range nodes {
		n.end(false)
	}
	return fault
}
