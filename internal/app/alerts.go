package app

import (
	"math/rand/v2"
	"os"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/alert"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// newAlerts makes what tells the webhook of failures. Without a webhook it has its metrics and does nothing.
func (d *daemon) newAlerts() *alert.Alerter {
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is for people, and the source is there too
	}
	return alert.New(alert.Config{
		Webhook: d.cfg.Alerts.Webhook.Reveal(), Secret: d.cfg.Alerts.Secret.Reveal(), Digest: d.cfg.Alerts.Digest,
		Source: d.cfg.Source.Address, Host: host, Version: d.opts.Version, Tables: d.failedRows, Random: rand.Float64,
		Limits: alert.Limits{Pending: int64(d.cfg.Alerts.PendingOver), Oldest: d.cfg.Alerts.OldestOver},
	}, d.log.Named("alerts"), d.registry)
}

// failedRows are the last counts, for the digest and the limits.
func (d *daemon) failedRows() (tables []alert.Table) {
	for _, t := range d.samples.Tables(time.Now()) {
		row := alert.Table{Table: t.Name, Failed: t.Rows[outbox.Failed.String()], Pending: t.Rows[outbox.Pending.String()]}
		if t.OldestPendingSeconds != nil {
			row.OldestPending = *t.OldestPendingSeconds
		}
		if d.relay.Ready() {
			again, _ := d.relay.again.Sent(t.Name)
			row.NotConsumed = again.GivenUp
		}
		tables = append(tables, row)
	}
	return tables
}
