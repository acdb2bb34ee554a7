package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// redeliver checks what is possible without the table.
func (r *report) redeliver(path string, t Table) {
	if t.Redeliver == (Redeliver{}) {
		return
	}
	r.Between(path+".after", t.Redeliver.After, time.Second, 30*24*time.Hour)
	r.Count(path+".max", t.Redeliver.Max, 0, 100)
	if address := t.Redeliver.StateQuery; address != "" {
		u, err := url.Parse(address.Reveal())
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			r.add(path+".state_query", address.String(), "is not an address: write http://host/path or https://host/path")
		}
	}
	m, err := table.Preset(t.Preset)
	if err != nil {
		return // reported as a separate fault
	}
	for name, code := range t.Codes {
		m.SetCode(name, code)
	}
	until := t.Redeliver.Until
	if until == "" {
		until = "consumed"
	}
	if m.States[until] == "" {
		known := "this table has none: name its code under codes"
		if names := slices.Sorted(maps.Keys(m.States)); len(names) > 0 {
			known = "this table has " + strings.Join(names, ", ")
		}
		r.add(path+".until", until, "is no state of the consumers: %s", known)
	}
}
