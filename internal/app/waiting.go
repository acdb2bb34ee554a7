package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// waiting is the process as the admin API sees it while a start waits for the database: alive, ready as far as the process
// itself is concerned, and with a readable state. Without it the port would be closed, and an orchestrator would end the process
// again and again.
type waiting struct {
	operator.Operator
	d *daemon
	// reader stands in for the reader's own series until there is a reader: the alert on it must not go blind.
	reader prometheus.Gauge

	mu  sync.Mutex
	why string
}

// wait lets the admin API answer while the database is awaited; err is why it is.
func (d *daemon) wait(ctx context.Context, err error) error {
	if d.waiting != nil {
		d.waiting.because(err)
		return nil
	}
	if err := d.openState(ctx); err != nil {
		return err
	}
	nowhere := func(context.Context, server.ID, outbox.Position, string) error { return relay.ErrNotRunning }
	d.waiting = &waiting{
		Operator: d.operator(), d: d,
		reader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "canal_outbox_reader_connected", Help: "1 while a binlog stream is open."}),
	}
	d.waiting.Move, d.waiting.Hold = nowhere, d.state.SetPause
	d.waiting.Tables = func(context.Context) (operator.Rows, error) {
		return nil, errors.New("the database does not answer: messages are looked at there; `canal-outbox status` says why")
	}
	d.waiting.because(err)
	d.registry.MustRegister(d.waiting.reader)
	return d.listen(d.waiting)
}

func (w *waiting) because(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = err.Error()
}

func (w *waiting) reason() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

// Live never fails: a restart would not bring the database back.
func (w *waiting) Live() error { return nil }

// Ready never fails either, as it does not when the database goes away later: status says what is waited for.
func (w *waiting) Ready() error { return nil }

// Sweep is refused.
func (w *waiting) Sweep(context.Context) error { return relay.ErrNotRunning }

// Retention is refused.
func (w *waiting) Retention(context.Context) error { return relay.ErrNotRunning }

// Status shows what is known without the database.
func (w *waiting) Status(context.Context) operator.Status {
	st := w.d.status(time.Now())
	operator.Judge(&st, nil, operator.See("waiting for the database: "+w.reason(), "The database is away"))
	st.Source.State, st.Source.Error = "waiting", w.reason()
	return st
}
