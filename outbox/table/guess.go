package table

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// guesses are the names by which columns of other layouts are recognised, in the order in which roles choose. A role that the relay writes
// has names that can mean nothing else.
var guesses = []struct {
	role  Column
	names *regexp.Regexp
}{
	{StatusCode, regexp.MustCompile(`(^|_)(status|state)$`)},
	{Topic, regexp.MustCompile(`topic|channel|exchange|destination|queue`)},
	{Headers, regexp.MustCompile(`headers?$|^properties$`)},
	{Body, regexp.MustCompile(`(^|_)(body|payload|content|data|json)$|^(message|msg)$`)},
	{Tag, regexp.MustCompile(`(^|_)tags?$`)},
	{ShardingKey, regexp.MustCompile(`^shard`)},
	{MaxRetry, regexp.MustCompile(`^max_?(retr|attempt|tries)`)},
	{RetryCount, regexp.MustCompile(`retr(y|ies)|attempts?(_|$)`)},
	{NextRetryTime, regexp.MustCompile(`^next_|^due|deliver(y|_)|^schedule|^available_at$`)},
	{LastExecTime, regexp.MustCompile(`^last_?(exec|retry|send|try|attempt)`)},
	{SentAt, regexp.MustCompile(`^(sent|send|publish(ed)?)_?(at|time)$`)},
	{CreatedAt, regexp.MustCompile(`creat|^insert|^ctime$|^add_?time$|^occurred`)},
	{UpdatedAt, regexp.MustCompile(`modif|updat|^mtime$`)},
	{UpdatedBy, regexp.MustCompile(`^(updat|modif)\w*_?by$`)},
	{FailReason, regexp.MustCompile(`(fail|error)_?(reason|message|msg|cause)|^(last_)?error$`)},
	{LockVersion, regexp.MustCompile(`^lock_version$`)},
	{MessageID, regexp.MustCompile(`^(message|msg|event)_?(id|no|uuid)$|uuid|guid`)},
	{BizType, regexp.MustCompile(`^(biz|business|aggregate|event|message|msg|entity)_?type$|^type$`)},
	{Key, regexp.MustCompile(`^(biz|business|aggregate|entity|order|message|msg)_?(key|id|no)$|^key$`)},
}

// Guess maps a table that no preset fits by the names and types of its columns. Its codes are those of the preset outbox, for the caller to
// set, and roles without a column are not mapped: Load says what is missing. The error is of the conversation with the server.
func Guess(ctx context.Context, db *sql.DB, schema, name string) (Mapping, error) {
	m, err := Preset("outbox")
	if err != nil {
		return m, err
	}
	m.Schema, m.Name = schema, name
	d, err := describe(ctx, db, m)
	if err != nil {
		return m, fmt.Errorf("look at table %s.%s: %w", schema, name, err)
	}
	m.guess(d)
	return m, nil
}

func (m *Mapping) guess(d description) {
	for role := range columnCount {
		m.Set(role, "")
	}
	for _, index := range d.indexes {
		if index.Name == "PRIMARY" && len(index.Columns) == 1 {
			m.Set(ID, d.spelled(index.Columns[0]))
		}
	}
	for _, guess := range guesses {
		if name := m.find(d, guess.role, guess.names); name != "" {
			m.Set(guess.role, name)
		}
	}
	if m.Columns[Body] == "" {
		m.Set(Body, m.onlyLong(d))
	}
	if m.Columns[MessageID] == "" && (m.Columns[BizType] == "" || m.Columns[Key] == "") {
		m.Set(MessageID, m.Columns[ID]) // unique in this table
	}
}

// find returns the first column that has the type and the name for a role, and no other role.
func (m *Mapping) find(d description, role Column, names *regexp.Regexp) string {
	for _, c := range d.columns {
		if slices.Contains(allowed[role], c.Kind()) && names.MatchString(strings.ToLower(c.Name)) && !m.mapped(c.Name) {
			return c.Name
		}
	}
	return ""
}

// onlyLong is the only column without a role that can hold long texts; "" where there are several.
func (m *Mapping) onlyLong(d description) (name string) {
	for _, c := range d.columns {
		if !slices.Contains([]Kind{kindLong, kindBinary, kindDocument}, c.Kind()) || m.mapped(c.Name) {
			continue
		}
		if name != "" {
			return ""
		}
		name = c.Name
	}
	return name
}

func (m *Mapping) mapped(column string) bool {
	for _, name := range m.Columns {
		if strings.EqualFold(name, column) {
			return true
		}
	}
	return false
}

// spelled is the name of a column as the server writes it.
func (d description) spelled(name string) string {
	for _, c := range d.columns {
		if strings.EqualFold(c.Name, name) {
			return c.Name
		}
	}
	return name
}

// Overrides are what a configuration writes under columns so that the preset becomes this mapping: the column of each role that differs from
// the preset's, and "" for those that the table lacks.
func (m Mapping) Overrides() (map[string]string, error) {
	p, err := Preset(m.Preset)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for role := range columnCount {
		if m.Columns[role] != p.Columns[role] {
			all[role.String()] = m.Columns[role]
		}
	}
	return all, nil
}
