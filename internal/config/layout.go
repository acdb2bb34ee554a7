package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// layout checks the mapping of a table to the relay's roles, as far as possible without the table.
func (r *report) layout(path string, t Table) {
	for _, role := range slices.Sorted(maps.Keys(t.Columns)) {
		if _, err := table.ParseColumn(role); err != nil {
			r.add(path+".columns."+role, t.Columns[role], "%v", err)
		}
	}
	r.codes(path+".codes", t.Codes)
	if !t.Topic.IsZero() {
		if _, err := t.Topic.Rule(); err != nil {
			r.add(path+".topic", t.Topic.Template, "%v", err)
		}
		if t.Columns["topic"] != "" {
			r.add(path+".columns.topic", t.Columns["topic"], "is set together with topic, which names the column itself: set one of the two")
		}
	}
	if name := t.MessageIDHeader; name != "" && !headerName.MatchString(name) {
		r.add(path+".message_id_header", name, "is no name of a header: write 1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
	}
}

const maxStates = 8 // each is a label of a metric

var (
	stateName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	headerName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// codes checks the names; whether a code fits into the column is checked with the table.
func (r *report) codes(path string, codes map[string]string) {
	states := 0
	var known []string
	for s := outbox.Pending; s <= outbox.Failed; s++ {
		known = append(known, s.String())
	}
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		if slices.Contains(known, name) {
			continue
		}
		near := slices.IndexFunc(known, func(k string) bool { return editDistance(name, k) <= 2 })
		switch states++; {
		case near >= 0: // pendin, faild: such a row would never be published
			r.add(path+"."+name, codes[name], "is the code of a state whose name is similar to %s: did you mean %s?", known[near], known[near])
		case !stateName.MatchString(name) || name == "held" || name == "delayed":
			r.add(path+"."+name, codes[name], "is the code of a state with an invalid name: write a name of a-z, 0-9 and _ that is not held or delayed")
		}
	}
	if states > maxStates {
		r.add(path, fmt.Sprint(states), "names more than %d states of the consumers", maxStates)
	}
}
