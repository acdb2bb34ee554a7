package alert

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A table that goes over a limit is reported once, however long it stays there and however it moves about the limit, and once more when it has
// recovered; then it may be reported again. The digest names what is over.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		var mu sync.Mutex
		one := Table{Table: "shop.t"}
		change := func(to func()) { mu.Lock(); defer mu.Unlock(); to() }
		cfg := Config{
			Limits: Limits{Pending: 1000, Oldest: 5 * time.Minute}, Tables: func() []Table {
				mu.Lock()
				defer mu.Unlock()
				return []Table{one, {Table: "shop.u", Pending: 900}}
			},
			Digest: time.Now().Add(20 * time.Hour).Format("15:04"),
		}
		a, _, stop := run(t, w, cfg)
		at := func(pending int64, oldest time.Duration) {
			change(func() { one.Pending, one.OldestPending = pending, oldest.Seconds() })
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		at(1000, 5*time.Minute)
		if len(w.messages) > 0 || len(a.Over()) > 0 {
			t.Fatalf("%+v", w.messages)
		}
		at(1001, time.Minute)
		for range 10 {
			at(900, time.Minute)
			at(5000, time.Minute)
		}
		if len(w.messages) != 1 || w.messages[0].Type != "limit" || w.messages[0].Text != "canal-outbox, : 1001 rows of shop.t wait to be sent, more than 1000" {
			t.Fatalf("%+v", w.messages)
		}
		if over := a.Over(); len(over) != 1 || over[0].Value != 5000 || over[0].Limit != 1000 || !over[0].Over {
			t.Errorf("%+v", over)
		}
		at(5000, 6*time.Minute)
		at(800, 4*time.Minute)
		at(1001, 0)
		var said []string
		for _, m := range w.messages[1:] {
			for _, c := range m.Limits {
				said = append(said, c.String())
			}
		}
		if got, want := strings.Join(said, "\n"), "the oldest row of shop.t waits to be sent for 6m0s, longer than 5m0s\n"+
			"the oldest row of shop.t waits to be sent for 4m0s, no longer than it may\n800 rows of shop.t wait to be sent, few enough again\n"+
			"1001 rows of shop.t wait to be sent, more than 1000"; got != want {
			t.Errorf("it says\n%s", got)
		}
		before := len(w.messages)
		change(func() { one.NotConsumed = 3 })
		time.Sleep(20 * time.Hour)
		change(func() { one.NotConsumed = 0 })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.messages) != before+3 || w.messages[before].Limits[0].What != overNotConsumed || w.messages[before+2].Limits[0].Over {
			t.Fatalf("%+v", w.messages[before:])
		}
		if d := w.messages[before+1]; d.Type != "digest" || len(d.Limits) != 2 || !strings.Contains(d.Text, "; 1001 rows of shop.t wait") {
			t.Errorf("%+v", d)
		}
		stop()
	})
}

// While the webhook is away only what is still true is kept for it. Without a webhook status shows it.
func TestLimitsWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		w.answer = func(context.Context, int) (int, error) { return 503, nil }
		var pending atomic.Int64
		pending.Store(20)
		a, _, stop := run(t, w, Config{Limits: Limits{Pending: 10}, Tables: func() []Table { return []Table{{Table: "shop.t", Pending: pending.Load()}} }})
		time.Sleep(10 * time.Minute)
		pending.Store(0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		attempts := len(w.messages)
		if attempts < 5 || len(a.crossed) > 0 || len(a.Over()) > 0 {
			t.Errorf("%d attempts, %v left", attempts, a.crossed)
		}
		time.Sleep(10 * time.Minute)
		if len(w.messages) > attempts {
			t.Error("it continues")
		}
		pending.Store(30)
		time.Sleep(time.Minute)
		synctest.Wait()
		if over := a.Over(); len(over) != 1 || over[0].Value != 30 {
			t.Errorf("%+v", over)
		}
		stop()
	})
}
