package operator

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const (
	lookEvery   = 5 * time.Second // for other relays; it costs one statement
	lookTimeout = 5 * time.Second
	failedLooks = 4 // looks in a row that may fail before the log says it: a database that is away has lines enough
)

// lookPauses are after looks that failed: a look may be an attempt to connect, and all parts of the relay together make few.
var lookPauses = outbox.Backoff{Base: lookEvery, Max: 30 * time.Second}

// Relays watches for other relays that work on the same tables, which means that every message is published twice. It says
// so in the log, once, and in a metric. What it saw last is kept until a look succeeds again.
type Relays struct {
	look  func(context.Context) ([]server.OtherRelay, error)
	log   *zap.Logger
	gauge prometheus.Gauge

	mu   sync.Mutex
	last []server.OtherRelay
}

// NewRelays returns a watch that has seen nothing yet; look is asked again and again by Run.
func NewRelays(look func(context.Context) ([]server.OtherRelay, error), reg prometheus.Registerer, log *zap.Logger) *Relays {
	r := &Relays{look: look, log: log, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "canal_outbox_other_relays", Help: "Other relays that work on the same tables and publish the same messages; 0 is right.",
	})}
	reg.MustRegister(r.gauge)
	return r
}

// Run looks until the context ends.
func (r *Relays) Run(ctx context.Context) {
	failed := 0
	for wait := time.Duration(0); outbox.Wait(ctx, wait, nil); {
		err := r.once(ctx)
		if err == nil {
			wait, failed = lookEvery, 0
			continue
		}
		wait = lookPauses.Delay(failed, rand.Float64())
		if failed++; failed == failedLooks && ctx.Err() == nil {
			r.log.Warn("cannot see whether another relay works on the same tables", zap.Error(err))
		}
	}
}

func (r *Relays) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	others, err := r.look(ctx)
	if err != nil {
		return err
	}
	connections := map[uint64]struct{}{}
	for _, o := range others {
		connections[o.Connection] = struct{}{}
	}
	r.gauge.Set(float64(len(connections)))
	r.mu.Lock()
	before := len(r.last)
	r.last = others
	r.mu.Unlock()
	switch {
	case before == 0 && len(others) > 0:
		r.log.Error("another relay works on the same tables: every message of them is published twice; stop one of the two",
			zap.Stringers("others", others))
	case before > 0 && len(others) == 0:
		r.log.Info("no other relay works on the tables any more")
	}
	return nil
}

// Others returns what was seen last.
func (r *Relays) Others() []OtherRelay {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []OtherRelay{}
	for _, o := range r.last {
		out = append(out, OtherRelay{Table: o.Table, Connection: o.Connection, From: o.From})
	}
	return out
}

// twofold is the problem that there are other relays; "" when there are none.
func twofold(others []OtherRelay) string {
	var all []string
	for _, o := range others {
		all = append(all, server.OtherRelay{Table: o.Table, Connection: o.Connection, From: o.From}.String())
	}
	if all == nil {
		return ""
	}
	return "another relay works on the same tables, every message is published twice: " + strings.Join(all, ", ") +
		"; stop one of the two"
}
