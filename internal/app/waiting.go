package app

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
)

// waiting is an instance while its start waits for the database. Without it the port would be closed, and an orchestrator would end the
// process again and again.
type waiting struct {
	idle
	why    atomic.Value     // string
	reader prometheus.Gauge // the reader's own series until there is a reader, for the alert on it
}

// wait lets the admin API answer during the wait for the database; err is its cause.
func (in *instance) wait(ctx context.Context, err error) error {
	if in.waiting != nil {
		in.waiting.why.Store(err.Error())
		return nil
	}
	if err := in.openState(ctx); err != nil {
		return err
	}
	w := &waiting{
		idle: in.idle(func() error { return relay.ErrNotRunning },
			errors.New("the database does not answer, and the messages are there; `canal-outbox status` says why")),
		reader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "canal_outbox_reader_connected", Help: "1 while a binlog stream is open."}),
	}
	w.Hold = in.state.SetPause
	w.why.Store(err.Error())
	in.waiting = w
	in.registry.MustRegister(w.reader)
	return in.serve(w, "", 0)
}

// Status shows what is known without the database.
func (w *waiting) Status(context.Context) operator.Status {
	why, _ := w.why.Load().(string)
	st := w.in.status(time.Now())
	operator.Judge(&st, nil, append(w.in.refusedSecrets(), operator.See("waiting for the database: "+why, "The database is away"))...)
	st.Source.State, st.Source.Error = "waiting", why
	return st
}
