package app

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// watchTables looks now and then which tables the patterns of the configuration match, until ctx ends. When they are others than those
// that the relay works on, and all of them can be worked on, it marks the daemon as outdated and calls stop.
func (d *daemon) watchTables(ctx context.Context, stop func()) {
	maps, err := mappings(d.cfg)
	if err != nil || !slices.ContainsFunc(maps, func(m table.Mapping) bool { return table.IsPattern(m.Schema + "." + m.Name) }) {
		return // the start has told of an error
	}
	var bound, refused []string
	reason := ""
	for _, t := range d.tables {
		bound = append(bound, strings.ToLower(t.Name()))
	}
	slices.Sort(bound)
	tick := time.NewTicker(d.cfg.Fallback.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := d.matching(ctx, maps)
		if err != nil || slices.Equal(now, bound) {
			continue // of a server that is away others tell
		}
		if _, err := usable(ctx, d.cfg, d.source, !d.opts.Shadow); err != nil {
			if !relay.Away(err) && ctx.Err() == nil && (!slices.Equal(now, refused) || reason != err.Error()) {
				d.log.Error("the tables that the patterns match have changed, and the relay goes on without the change, because it could not start with it",
					zap.Strings("tables", now), zap.Error(err))
				refused, reason = now, err.Error()
			}
			continue
		}
		d.log.Info("the tables that the patterns match have changed: starting anew with them", zap.Int("before", len(bound)), zap.Int("now", len(now)))
		d.outdated.Store(true)
		stop()
		return
	}
}

// matching lists the tables of the configuration that exist now, or are named exactly, in lower case and in order.
func (d *daemon) matching(ctx context.Context, maps []table.Mapping) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, firstPatience)
	defer cancel()
	maps, _, err = table.Expand(ctx, d.plain, maps)
	for _, m := range maps {
		names = append(names, strings.ToLower(m.Schema+"."+m.Name))
	}
	slices.Sort(names)
	return names, err
}
