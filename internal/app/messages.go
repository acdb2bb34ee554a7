package app

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// messaging is what a running relay adds for single messages.
func (in *instance) messaging() operator.Messaging {
	m := operator.Messaging{
		Flow: in.flow, StartSweep: in.sweep, Noted: in.notes.of, Note: in.notes.person,
		ClaimTimeout: in.cfg.Fallback.ClaimTimeout, Interval: in.cfg.Fallback.Interval,
	}
	if in.shadow != nil {
		m.Refuse = operator.Refusedf("this relay runs as a shadow (run --shadow) and changes nothing")
	}
	if reader, can := relay.Unfenced(in.sink).(sink.Reader); can {
		m.Broker = func() (sink.Reader, func(), error) { return reader, func() {}, nil }
	}
	return m
}

// flow is what the running relay has in memory of a row.
func (in *instance) flow(id outbox.Identity, topic string) operator.Flow {
	if !in.relay.Ready() {
		return operator.Flow{Standby: "this relay, which is starting or stopping"}
	}
	if p := in.state.Pause(); p != nil {
		return operator.Flow{Standby: "the end of the pause that an operator has made; `canal-outbox resume` ends it"}
	}
	now := in.relay.Flow.Snapshot()
	f := operator.Flow{Owned: in.relay.Flow.Owns(id), Breaker: now.Breaker, Trouble: now.Trouble}
	if first, why, waits := in.relay.Flow.Behind(id); waits {
		f.Behind = "row " + first.ID + " (" + first.MessageID + "), " + why
	}
	for _, t := range now.SuspendedTopics {
		if t.Topic == topic {
			f.Suspended = t.Reason
		}
	}
	return f
}

// operatorRows are the mapped tables as an operator needs them.
type operatorRows struct {
	tableRows
	failedEvery time.Duration // of the configuration, for all tables
	// setBack is called before rows are set back, and returns those that may be.
	setBack func(context.Context, []outbox.Identity) ([]outbox.Identity, error)
}

// Retry implements operator.Rows.
func (r operatorRows) Retry(ctx context.Context, ids []outbox.Identity) (int64, error) {
	ids, err := r.setBack(ctx, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return r.tableRows.Retry(ctx, ids)
}

// Republish implements operator.Rows.
func (r operatorRows) Republish(ctx context.Context, ids []outbox.Identity) (int64, error) {
	ids, err := r.setBack(ctx, ids)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return r.tableRows.Republish(ctx, ids)
}

// Grace implements operator.Rows.
func (r operatorRows) Grace(name string) time.Duration { return r.span(name, (*table.Table).Grace) }

// FailedEvery implements operator.Rows.
func (r operatorRows) FailedEvery(name string) time.Duration {
	return r.span(name, func(t *table.Table) time.Duration { return t.FailedEvery(r.failedEvery) })
}

func (r operatorRows) span(name string, of func(*table.Table) time.Duration) time.Duration {
	for _, t := range r.Store.Tables() {
		if t.Name() == name {
			return of(t)
		}
	}
	return 0
}

// openReader opens the sink to be read back.
func openReader(cfg *config.Config) (sink.Reader, func(), error) {
	broker, err := newSink(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	done := func() {
		ended, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = broker.Close(ended) // nothing was published, so that nothing can be lost
	}
	reader, can := broker.(sink.Reader)
	if !can {
		done()
		return nil, nil, errors.New("the sink " + cfg.Sink.Kind() + " cannot be read back")
	}
	return reader, done, nil
}
