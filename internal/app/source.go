package app

import (
	"context"
	"errors"
	"slices"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// inspectSource looks at the server's settings, the grants and the mapped tables as the relay will use them, on a
// connection like those of the acknowledgements, and binds the tables. Everything that is wrong comes as a finding, all of
// it at once; an error means that the server could not be asked.
func inspectSource(ctx context.Context, cfg *config.Config, source server.Config) (tables []*table.Table, findings []server.Finding, err error) {
	db, err := server.Open(source, nil, server.Session{Writes: true, MaxConns: 1})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	info, err := server.Inspect(ctx, db)
	var readOnly *server.ReadOnlyError
	if errors.As(err, &readOnly) {
		what := "the server at " + readOnly.Address + " is read-only: no status can be written"
		return nil, []server.Finding{{Severity: server.Fault, Subject: "source", What: what, Fix: "point source.address at the primary, or end the maintenance"}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	maps, err := mappings(cfg.Tables)
	if err != nil {
		return nil, nil, err
	}
	var probes []server.Probe
	for _, m := range maps {
		t, found, err := table.Load(ctx, db, m)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, found...)
		if t != nil {
			tables, probes = append(tables, t), append(probes, t.Probes()...)
		}
	}
	grants, err := info.Grants(ctx, db, probes)
	if err != nil {
		return nil, nil, err
	}
	findings = append(findings, slices.Compact(grants)...) // several statements may miss the same privilege
	settings, err := info.Check(ctx, db)
	if err != nil && !server.HasFault(grants) { // without the grant the settings cannot be asked for, which the grant's fault says
		return nil, nil, err
	}
	return tables, append(settings, findings...), nil
}
