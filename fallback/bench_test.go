package fallback

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// bench is a Sweeper on a world.
type bench struct {
	*world
	*Sweeper
	*Triggers
	logs *observer.ObservedLogs
	reg  *prometheus.Registry
	stop func()
}

// start runs a Sweeper on w until the end of the test; more names tables that do not exist.
func start(t *testing.T, w *world, more ...string) *bench {
	t.Helper()
	return startWith(t, w, Config{Tables: more})
}

func startWith(t *testing.T, w *world, cfg Config) *bench {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	b := &bench{world: w, logs: logs, reg: prometheus.NewRegistry()}
	cfg.Tables = append(cfg.Tables, shop)
	b.Triggers = NewTriggers(cfg)
	b.Sweeper = New(cfg, b.Triggers, w, w, w, zap.New(core), b.reg)
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
		for id := range w.owned {
			if _, mine := w.rows[atoi(id.ID)]; mine && w.rows[atoi(id.ID)].topic != "owned" {
				t.Errorf("%v is still reserved", id)
			}
		}
	})
	t.Cleanup(b.stop)
	synctest.Wait()
	return b
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// count reads a counter by the value of its last label.
func (b *bench) count(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetValue() == label {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	t.Fatalf("no series %s %s", name, label)
	return 0
}

func want(t *testing.T, what string, got []int, wanted ...int) {
	t.Helper()
	if !slices.Equal(got, wanted) {
		t.Fatalf("%s: published %v, want %v", what, got, wanted)
	}
}
