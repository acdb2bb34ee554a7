package app

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/messages"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
)

// messages are those of a running relay.
func (d *daemon) messages() messages.Messages {
	m := messages.Parts{
		Rows: d.rows, Journal: d.state.Journal, History: operatorState{d.state}.History, Flow: d.flow, Swept: d.sweep, Begin: d.begin,
		ClaimTimeout: d.cfg.Fallback.ClaimTimeout, Interval: d.cfg.Fallback.Interval,
	}
	m.Noted, m.Note = d.notes.of, d.notes.person
	m.Grace, m.FailedEvery = spans(d.rows.Store, d.cfg)
	if d.shadow != nil {
		m.Refuse = operator.Refusedf("this relay runs as a shadow (run --shadow) and changes nothing")
	}
	if reader, can := unfenced(d.sink).(sink.Reader); can {
		m.Broker = func() (sink.Reader, func(), error) { return reader, func() {}, nil }
	}
	return messages.Messages{Parts: m}
}

// flow is what the running relay knows of a row.
func (d *daemon) flow(id outbox.Identity, topic string) messages.Flow {
	if !d.relay.Ready() {
		return messages.Flow{Standby: "this relay, which is starting or stopping"}
	}
	if p := d.state.Pause(); p != nil {
		return messages.Flow{Standby: "the end of the pause that an operator has made; `canal-outbox resume` ends it"}
	}
	now := d.relay.Flow.Snapshot()
	f := messages.Flow{Owned: d.relay.Flow.Owns(id), Breaker: now.Breaker, Trouble: now.Trouble}
	if first, why, waits := d.relay.Flow.Behind(id); waits {
		f.Behind = "row " + first.ID + " (" + first.MessageID + "), " + why
	}
	for _, t := range now.SuspendedTopics {
		if t.Topic == topic {
			f.Suspended = t.Reason
		}
	}
	return f
}

// spans look up, by table, the time that the application has to publish a row, and the wait of a FAILED one.
func spans(rows *store.Store, cfg *config.Config) (grace, failedEvery func(string) time.Duration) {
	of := func(span func(*table.Table) time.Duration) func(string) time.Duration {
		return func(name string) time.Duration {
			for _, t := range rows.Tables() {
				if t.Name() == name {
					return span(t)
				}
			}
			return 0
		}
	}
	return of((*table.Table).Grace), of(func(t *table.Table) time.Duration { return t.FailedEvery(cfg.Retry.FailedEvery) })
}

// OfflineMessages are the messages for a command that no daemon answers.
type OfflineMessages struct {
	messages.Messages
	db    *sql.DB
	state *checkpoint.Store // nil where there is none yet
}

// OpenMessages opens the database of a configuration, and its state directory where there is one: what a table has no columns for is
// there. It is refused while another process has that open.
func OpenMessages(ctx context.Context, cfg *config.Config) (m *OfflineMessages, err error) {
	m = &OfflineMessages{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if _, err := os.Stat(filepath.Clean(cfg.Checkpoint.Dir)); err == nil {
		m.state, err = checkpoint.OpenContext(ctx, cfg.Checkpoint.Dir, checkpoint.Options{})
		if errors.Is(err, checkpoint.ErrLocked) {
			return m, operator.Refusedf("%v", err)
		} else if err != nil {
			return m, err
		}
	}
	if m.db, err = OpenDatabase(cfg); err != nil {
		return m, err
	}
	tables, err := bound(ctx, m.db, cfg)
	if err != nil {
		return m, err
	}
	rows := rowsOf(m.db, tables, nil, nil)
	if m.state != nil {
		rows = rowsOf(m.db, tables, m.state, nil)
		m.Journal, m.History, m.Begin = m.state.Journal, operatorState{m.state}.History, operatorState{m.state}.begin
		kept := newNotes(cfg.Checkpoint.Dir, "none: without a running relay", zap.NewNop())
		m.Noted, m.Note = kept.of, kept.person
	}
	m.Rows, m.ClaimTimeout, m.Interval = rows, cfg.Fallback.ClaimTimeout, cfg.Fallback.Interval
	m.Grace, m.FailedEvery = spans(rows.Store, cfg)
	m.Broker = func() (sink.Reader, func(), error) { return openReader(cfg) }
	return m, nil
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

// Close releases the database and the directory.
func (m *OfflineMessages) Close() error {
	var errs []error
	if m.db != nil {
		_ = m.db.Close() // the error of a connection that broke earlier is no failure of this run
	}
	if m.state != nil {
		errs = append(errs, m.state.Close())
	}
	return errors.Join(errs...)
}
