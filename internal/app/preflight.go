package app

import (
	"context"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/doctor"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// FaultsError lists everything that must be fixed before a start.
type FaultsError struct{ Findings []server.Finding }

// Error shows each fault with what fixes it.
func (e *FaultsError) Error() string {
	var b strings.Builder
	b.WriteString("cannot start, nothing was written:")
	for _, f := range e.Findings {
		b.WriteString("\n  " + f.Subject + ": " + f.What)
		if f.Fix != "" {
			b.WriteString("\n    fix: " + strings.ReplaceAll(f.Fix, "\n", "\n    "))
		}
	}
	return b.String()
}

// firstPatience bounds the first look at a database that was there before; while a longer one runs the admin API reports the wait.
const firstPatience = 5 * time.Second

// preflight looks at the server, the grants and the tables before anything is written, and binds the tables. A relay that
// has worked before waits for a database that is away or read-only; on the first start that is more likely a wrong address, and an error.
// A login that is refused ends a process that begins; one that has worked waits, because the password is being changed.
func (in *instance) preflight(ctx context.Context, source server.Config) (tables []*table.Table, err error) {
	asking, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var unserved error // why the admin API cannot report the wait
	look := func() (err error) {
		asked, cancel := asking, context.CancelFunc(func() {})
		if in.waiting == nil { // a server that accepts the connection and never answers must not delay the admin API
			asked, cancel = context.WithTimeout(asking, firstPatience)
		}
		defer cancel()
		tables, err = usable(asked, in.cfg, source, !in.opts.Shadow)
		switch {
		case ctx.Err() != nil:
		case server.Refused(err) && !in.worked:
			giveUp()
		case relay.Away(err):
			if unserved = in.wait(ctx, err); unserved != nil {
				giveUp()
			}
		}
		return err
	}
	if in.worked || checkpoint.Exists(in.cfg.Checkpoint.Dir) {
		err = relay.UntilAnswered(asking, in.log, look)
	} else {
		tables, err = usable(ctx, in.cfg, source, !in.opts.Shadow)
	}
	if unserved != nil {
		return nil, unserved
	}
	switch server.Classify(err) {
	case server.ReadOnly:
		if ctx.Err() == nil {
			err = &FaultsError{Findings: []server.Finding{doctor.ReadOnly(err)}}
		}
	case server.Lost, server.Service:
		if ctx.Err() == nil {
			what := server.Finding{Severity: server.Fault, Subject: "source", What: err.Error(), Fix: doctor.ConnectFix(err, in.cfg.Source.User)}
			err = &FaultsError{Findings: []server.Finding{what}}
		}
	}
	in.worked = in.worked || err == nil
	return tables, err
}

// usable returns the bound tables, or every fault. writes is false for a shadow.
func usable(ctx context.Context, cfg *config.Config, source server.Config, writes bool) ([]*table.Table, error) {
	maps, err := mappings(cfg)
	if err != nil {
		return nil, err
	}
	tables, findings, err := doctor.Inspect(ctx, source, maps, writes)
	if err != nil {
		return nil, err
	}
	faults := doctor.BadTopics(cfg, maps)
	for _, f := range findings {
		if f.Severity == server.Fault {
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return nil, &FaultsError{Findings: faults}
	}
	return tables, nil
}
