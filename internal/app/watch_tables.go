package app

import (
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// newTables compares, at the interval of the sweeps and until ctx ends, the tables that the patterns of the configuration match with those
// of the relay. It returns true when they differ and a relay can work on all of them.
func newTables(ctx context.Context, p *process, ask *asker, of []*table.Table) bool {
	maps, err := mappings(p.cfg)
	if err != nil || !slices.ContainsFunc(maps, func(m table.Mapping) bool { return table.IsPattern(m.Schema + "." + m.Name) }) {
		return false // the start has reported an error
	}
	var refused, reason string
	bound := lower(names(of))
	for outbox.Wait(ctx, p.cfg.Fallback.Interval, nil) {
		now, err := matching(ctx, ask, maps)
		if err != nil || slices.Equal(now, bound) {
			continue // other parts report a server that is away
		}
		if _, err := usable(ctx, p.cfg, ask.source, !p.opts.Shadow); err != nil {
			if list := strings.Join(now, ","); !relay.Away(err) && ctx.Err() == nil && (list != refused || reason != err.Error()) {
				p.log.Error("the tables that the patterns match have changed, and the relay continues without the change, because it could not start with it",
					zap.Strings("tables", now), zap.Error(err))
				refused, reason = list, err.Error()
			}
			continue
		}
		p.log.Info("the tables that the patterns match have changed: starting again with them", zap.Int("before", len(bound)), zap.Int("now", len(now)))
		return true
	}
	return false
}

// matching lists the tables of the configuration that exist now, or are named exactly, in lower case and in order.
func matching(ctx context.Context, ask *asker, maps []table.Mapping) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	maps, _, err := table.Expand(ctx, ask.db, maps)
	found := make([]string, len(maps))
	for i, m := range maps {
		found[i] = m.Schema + "." + m.Name
	}
	return lower(found), err
}

func lower(names []string) []string {
	for i, name := range names {
		names[i] = strings.ToLower(name)
	}
	slices.Sort(names)
	return names
}
