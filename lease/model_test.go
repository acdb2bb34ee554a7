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

	"github.com/canal-outbox/canal-outbox/outbox"
)

// model is the lease table in memory, by a clock of its own.
type model struct {
	mu    sync.Mutex
	ahead time.Duration // of the database's clock
	rows  []Record
	last  uint64
	until map[uint64]time.Time
}

func newModel() *model { return &model{until: map[uint64]time.Time{}} }

func (m *model) now() time.Time { return time.Now().Add(m.ahead) }

func (m *model) text(epoch uint64) string {
	if end, set := m.until[epoch]; set {
		return end.Format("15:04:05.000000")
	}
	return ""
}

func (m *model) Read(context.Context) ([]Record, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.rows)
	for i := range all {
		all[i].Ends = m.text(all[i].Epoch)
		all[i].Ended = !m.until[all[i].Epoch].After(m.now())
	}
	return all, m.last, nil
}

func (m *model) Take(_ context.Context, next Record, newest uint64, from []Record, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range from {
		if !slices.ContainsFunc(m.rows, func(o Record) bool { return o.Epoch == r.Epoch && m.text(o.Epoch) == r.Ends }) {
			return ErrTaken
		}
	}
	if m.last != newest {
		return ErrTaken
	}
	m.last = next.Epoch
	m.rows = slices.DeleteFunc(m.rows, func(o Record) bool {
		return slices.ContainsFunc(from, func(r Record) bool { return r.Epoch == o.Epoch })
	})
	m.rows = append(m.rows, next)
	m.until[next.Epoch] = m.now().Add(ttl)
	return nil
}

func (m *model) Renew(_ context.Context, epoch uint64, at Resume, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.rows {
		if m.rows[i].Epoch == epoch {
			m.rows[i].Resume = at
			m.until[epoch] = m.now().Add(ttl)
			return true, nil
		}
	}
	return false, nil
}

func (m *model) Release(_ context.Context, epoch uint64, _ Resume) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.until, epoch)
	return nil
}

// way is one process's way to the database: it may be slow, break, or swallow everything.
type way struct {
	*model
	mu    sync.Mutex
	cut   bool
	delay time.Duration // before the statement; as much again before the answer
}

func (w *way) set(cut bool, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.delay = cut, delay
}

var errCut = errors.New("no way to the database")

// pass is called on the way there and on the way back. A statement whose answer is lost may have been done.
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

func (w *way) Read(ctx context.Context) (all []Record, newest uint64, err error) {
	if err = w.pass(ctx); err == nil {
		all, newest, err = w.model.Read(ctx)
	}
	return all, newest, errors.Join(err, w.pass(ctx))
}

func (w *way) Take(ctx context.Context, next Record, newest uint64, from []Record, ttl time.Duration) (err error) {
	if err = w.pass(ctx); err == nil {
		err = w.model.Take(ctx, next, newest, from, ttl)
	}
	if back := w.pass(ctx); back != nil {
		return back
	}
	return err
}

func (w *way) Renew(ctx context.Context, epoch uint64, at Resume, ttl time.Duration) (held bool, err error) {
	if err = w.pass(ctx); err == nil {
		held, err = w.model.Renew(ctx, epoch, at, ttl)
	}
	return held, errors.Join(err, w.pass(ctx))
}

// node is a state directory with, at most times, a process.
type node struct {
	way    *way
	holder string
	boot   string
	tables []string

	mu     sync.Mutex
	grants []*Grant // of all processes there were
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
			_ = grant.Keep(ctx, func() Resume { return Resume{At: outbox.Position{File: "f", Offset: grant.Epoch}} }) // lost: stand by
		}
	}()
}

// end kills the process, which may publish nothing any more; with release it ends in order.
func (n *node) end(release bool) {
	if n.kill == nil {
		return
	}
	n.kill()
	<-n.done
	if release {
		_ = n.lease.Release(context.Background(), Resume{}) // without a way the lease runs out
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

var events = []string{"kill", "release", "cut", "slow", "mend", "start", "start", "clock back", "clock ahead", "wait"}

// Whatever happens to processes, their way to the database and the database's clock: of the processes whose tables overlap never two
// may publish at the same time. When all is mended somebody may.
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
			n.way.set(false, 1600*time.Millisecond) // a conversation takes nearly as long as it may
		case "mend":
			n.way.set(false, time.Millisecond)
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
		fault = "nobody may publish though all is mended"
	}
	for _, n := range nodes {
		n.end(false)
	}
	return fault
}
