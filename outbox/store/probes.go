package store

import (
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Probes show, without changing anything, whether the account may run the statements on this table.
// Of one that only reads (run --shadow), writes is false.
func Probes(of *table.Table, writes bool) []server.Probe {
	t := withLocks(of)
	if t.LogOnly() {
		return nil // no statement concerns it
	}
	if !writes {
		return []server.Probe{{Privileges: "SELECT", On: t.Quoted(), Statement: "SELECT 1 FROM " + t.Quoted() + " LIMIT 0"}}
	}
	none := outbox.Completion{Identity: outbox.Identity{ID: t.NoID()}}
	var probes []server.Probe
	for _, completion := range []outbox.Action{outbox.ActionMarkSent, outbox.ActionRetry} {
		s := t.update(completion, []outbox.Completion{none})
		probes = append(probes, server.Probe{
			Privileges: "SELECT, UPDATE", On: t.Quoted(), Statement: "EXPLAIN " + s.String(), Args: s.Args,
		})
	}
	return probes
}
