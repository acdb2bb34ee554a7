package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
	"github.com/canal-outbox/canal-outbox/sink"
)

// ReconcileOptions are what a person asks to be compared.
type ReconcileOptions struct {
	From, To    string        // RFC 3339, or a span of time before now; To is now when empty
	Tables      []string      // schema.table; none: all that are mapped
	Topics      []string      // none: those that the rows name
	Margin      time.Duration // see reconcile.Request, as what follows
	Limit       int
	IgnoreExtra bool
	Republish   bool
}

// Reconcile compares the tables of a configuration with the topics of its sink. It needs no relay and may run during the work of
// one. For wrong options it returns an *admin.Error with CodeUsage.
func Reconcile(ctx context.Context, cfg *config.Config, opts ReconcileOptions) (report reconcile.Report, err error) {
	if err := opts.check(); err != nil {
		return report, err
	}
	broker, err := newSink(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return report, err
	}
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, broker.Close(ended))
	}()
	reader, can := broker.(sink.Reader)
	if !can {
		return report, operator.Usagef("the sink %s cannot be read back, so there is nothing to compare the tables with", cfg.Sink.Kind())
	}
	db, err := OpenDatabase(cfg)
	if err != nil {
		return report, err
	}
	defer func() { _ = db.Close() }() // the error of a connection that broke earlier is no failure of this run
	tables, err := bound(ctx, db, cfg)
	if err != nil {
		return report, err
	}
	rows := rowsOf(db, tables, nil, nil)
	req, err := opts.request(ctx, rows, slices.Sorted(maps.Keys(withoutStatus(tables))))
	if err != nil {
		return report, err
	}
	return reconcile.Run(ctx, req, rows, reader)
}

// check finds what can be wrong without a server.
func (o ReconcileOptions) check() error {
	_, err := o.window(time.Now())
	switch {
	case err != nil:
		return err
	case o.Margin < 0:
		return operator.Usagef("--margin %s: must not be negative", o.Margin)
	case o.Limit < 0:
		return operator.Usagef("--limit %d: must be 0 or more", o.Limit)
	}
	return nil
}

// window is what From and To are when it is now.
func (o ReconcileOptions) window(now time.Time) (w [2]time.Time, err error) {
	if o.From == "" {
		return w, operator.Usagef("--from is missing: a time such as 2026-01-02T15:04:05Z, or a span before now such as 24h")
	}
	if w[0], err = timeOf("--from", o.From, now); err != nil {
		return w, err
	}
	if w[1] = now; o.To != "" {
		if w[1], err = timeOf("--to", o.To, now); err != nil {
			return w, err
		}
	}
	switch {
	case w[0].Unix() < 0:
		return w, operator.Usagef("--from %s: is before 1970", o.From)
	case !w[0].Before(w[1]):
		return w, operator.Usagef("--from %s is not before --to %s", w[0].UTC().Format(time.RFC3339), w[1].UTC().Format(time.RFC3339))
	}
	return w, nil
}

// timeOf reads a time, or a span of time before now.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if span, err := time.ParseDuration(text); err == nil && span >= 0 {
		return now.Add(-span), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, operator.Usagef("%s %q: is neither a time with its zone, such as 2026-01-02T15:04:05Z or 2026-01-02T15:04:05+08:00, nor a span before now such as 24h", flag, text)
	}
	if at.After(now) { // rows of the future are made while we look
		at = now
	}
	return at, nil
}

// request fills in what only the database has.
func (o ReconcileOptions) request(ctx context.Context, rows tableRows, withoutStatus []string) (reconcile.Request, error) {
	req := reconcile.Request{Topics: o.Topics, Margin: o.Margin, Limit: o.Limit, IgnoreExtra: o.IgnoreExtra, Republish: o.Republish}
	now, err := rows.Now(ctx)
	if err != nil {
		return req, fmt.Errorf("ask the database for its time: %w", err)
	}
	w, err := o.window(now)
	if err != nil {
		return req, err
	}
	req.From, req.To = w[0], w[1]
	var mapped []string
	for _, t := range rows.Tables() {
		mapped = append(mapped, t.Name())
	}
	if req.Tables = o.Tables; len(req.Tables) == 0 {
		req.Tables = mapped
	}
	if len(req.Tables) == 0 {
		return req, operator.Usagef("no table has a status (%s): rows of such a table may be deleted at once, so there is nothing to compare the topic with", strings.Join(withoutStatus, ", "))
	}
	for _, name := range req.Tables {
		if slices.Contains(withoutStatus, name) {
			return req, operator.Usagef("--table %s: has no status, and its rows may be deleted at once: there is nothing to compare the topic with", name)
		}
		if !slices.Contains(mapped, name) {
			return req, operator.Usagef("--table %s: is not mapped; mapped are %s", name, strings.Join(mapped, ", "))
		}
	}
	if o.IgnoreExtra {
		return req, nil
	}
	findings, err := rows.CheckLookup(ctx)
	if err == nil && len(findings) > 0 {
		err = fmt.Errorf("%s: %s, so that records without a row cannot be told; %s, or compare with --ignore-extra", findings[0].Subject, findings[0].What, findings[0].Fix)
	}
	return req, err
}
