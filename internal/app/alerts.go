package app

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/alert"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
)

// newAlerts makes the part that reports failures to the webhook. Without a webhook it has its metrics and does nothing.
func (in *instance) newAlerts(a *active) *alert.Alerter {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people, and the source is there too
	}
	return alert.New(alert.Config{
		Failed: a.listFailed, Memory: digestMemory{in.state.Digest},
		Webhook: in.cfg.Alerts.Webhook.Reveal(), Secret: in.cfg.Alerts.Secret, Digest: in.cfg.Alerts.Digest,
		Source: in.cfg.Source.Address, Host: host, Version: in.opts.Version, Tables: a.failedRows, Random: rand.Float64,
		Limits: alert.Limits{Pending: int64(in.cfg.Alerts.PendingOver), Oldest: in.cfg.Alerts.OldestOver},
	}, in.log.Named("alerts"), in.registry)
}

// failedRows are the last counts, for the digest and the limits.
func (a *active) failedRows() (tables []alert.Table) {
	for _, t := range a.samples.Tables(time.Now()) {
		row := alert.Table{Table: t.Name, Failed: t.Rows[outbox.Failed.String()], Pending: t.Rows[outbox.Pending.String()]}
		if t.OldestPendingSeconds != nil {
			row.OldestPending = *t.OldestPendingSeconds
		}
		if a.relay.Ready() {
			again, _ := a.relay.Redeliver.Sent(t.Name)
			row.NotConsumed = again.GivenUp
		}
		tables = append(tables, row)
	}
	return tables
}

// listFailed lists FAILED rows for the alerts.
func (a *active) listFailed(ctx context.Context, name string) (rows []alert.Row, err error) {
	listed, err := a.rows.List(ctx, name, query.Listing{State: outbox.Failed.String(), Limit: alert.MaxListed, Scan: true})
	for _, r := range listed.Rows {
		rows = append(rows, alert.Row{
			Table: r.Table, ID: r.ID, MessageID: r.MessageID, Type: r.Type, Key: r.Key, Topic: r.Topic, Attempts: r.Attempts, Reason: r.Reason,
		})
	}
	return rows, err
}

// digestMemory is the part of the state directory that the alerts use.
type digestMemory struct{ *checkpoint.Digest }

// Day implements alert.Memory.
func (m digestMemory) Day() (alert.Day, error) {
	d, err := m.Digest.Day()
	return alert.Day(d), err
}

// KeepDay implements alert.Memory.
func (m digestMemory) KeepDay(d alert.Day) error { return m.Save(checkpoint.Day(d)) }
