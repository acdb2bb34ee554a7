package table

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/charset"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// check collects what is wrong between a mapping and a description.
type check struct {
	mapping     Mapping
	description description
	subject     string
	findings    []server.Finding
	clauses     []clause
}

func (c *check) add(severity server.Severity, part, what, fix string) {
	subject := c.subject
	if part != "" {
		subject += "." + part
	}
	c.findings = append(c.findings, server.Finding{Severity: severity, Subject: subject, What: what, Fix: fix})
}

// table reports whether there is a table to look into.
func (c *check) table() bool {
	d := c.description
	switch {
	case !d.found:
		c.missingTable()
		return false
	case d.view:
		c.add(server.Fault, "", "it is a view: the binlog names only the tables below it", "map the table below the view")
		return false
	case !strings.EqualFold(d.engine, "InnoDB"):
		c.change(server.Fault, "", "its engine is "+d.engine+": rows of a rolled-back transaction would stay and be published", "ENGINE=InnoDB")
	}
	for _, column := range d.columns {
		if strings.Contains(column.fullType, "compressed") {
			c.modify(server.Fault, column, "the column is COMPRESSED: rows of the table cannot be decoded from the binlog", definition.uncompressed)
		}
	}
	return true
}

// missingTable names the command that makes the table, and, where the table may be hidden, the privilege that shows it.
func (c *check) missingTable() {
	m := c.mapping
	create := "make it: canal-outbox migrate (source.user needs CREATE for that), or let an administrator run what this prints:\n" +
		fmt.Sprintf("canal-outbox migrate --preset %s --table %s.%s --print", m.Preset, m.Schema, m.Name)
	if c.description.absent {
		c.add(server.Fault, "", "there is no such table", create)
		return
	}
	c.add(server.Fault, "", fmt.Sprintf("there is no such table, or the account %s may not see it", c.description.account),
		fmt.Sprintf("if it is there: GRANT SELECT, UPDATE ON %s.%s TO %s\nif not, ", Quote(m.Schema), Quote(m.Name),
			server.QuoteAccount(c.description.account))+create)
}

// spell finds the spellings that this table has, and says of each that is not the first which one it is.
func (c *check) spell() {
	m := &c.mapping
	m.Columns, m.Spellings, m.IfPresent = maps.Clone(m.Columns), maps.Clone(m.Spellings), maps.Clone(m.IfPresent)
	for role := range columnCount {
		for i, name := range append([]string{m.Columns[role]}, m.Spellings[role]...) {
			if m.Spellings[role] == nil || !c.has(name) || c.taken(role, name) {
				continue
			}
			if m.Set(role, name); i > 0 {
				c.add(server.OK, name, fmt.Sprintf("found as the %s", role), "")
			}
			break
		}
		if m.Spellings[role] != nil && m.IfPresent[role] && c.taken(role, m.Columns[role]) { // it is another role's column
			m.Set(role, "")
		}
	}
	for _, what := range m.shared() {
		c.add(server.Fault, "", what, "map one of them to another column, or to \"\" to do without it, under tables[].columns of the configuration")
	}
}

// taken reports whether a column has a role already that does not go with another one.
func (c *check) taken(role Column, name string) bool {
	for other, column := range c.mapping.Columns {
		if other != role && strings.EqualFold(column, name) && c.mapping.Spellings[other] == nil &&
			(slices.Contains(written, other) || slices.Contains(written, role)) {
			return true
		}
	}
	return false
}

func (c *check) has(name string) bool {
	return slices.ContainsFunc(c.description.columns, func(t ColumnType) bool { return strings.EqualFold(t.Name, name) })
}

// column binds one role; nil when nothing plays it or what plays it has a fault.
func (c *check) column(role Column) *ColumnType {
	name := c.mapping.Columns[role]
	if name == "" {
		return nil
	}
	i := slices.IndexFunc(c.description.columns, func(t ColumnType) bool { return strings.EqualFold(t.Name, name) })
	if i < 0 {
		c.missing(role, name)
		return nil
	}
	t := c.description.columns[i]
	switch {
	case !slices.Contains(allowed[role], t.Kind()) && (role != Topic || c.mapping.Topic == nil || t.Kind() != KindInteger): // a rule makes a name of a number
		c.add(server.Fault, t.Name, fmt.Sprintf("type %s cannot be the %s: it must be %s", t.fullType, role, allowedNames(role)),
			"change the column's type, or map another column")
		return nil
	case !t.readable():
		c.modify(server.Fault, t, fmt.Sprintf("its character set is %s: the binlog has the text in that set, and the relay can read only %s", t.Charset, charset.Supported),
			definition.inUTF8)
	case strings.Contains(t.extra, "virtual"):
		c.add(server.Fault, t.Name, "it is a VIRTUAL generated column: not every row in the binlog has it", "make it STORED")
		return nil
	case slices.Contains(written, role) && strings.Contains(t.extra, "generated") && !strings.Contains(t.extra, "default_generated"):
		c.add(server.Fault, t.Name, fmt.Sprintf("it is a generated column and cannot be written as %s", role), "map another column")
		return nil
	case t.Kind() == kindDocument:
		c.modify(server.Warning, t, "type JSON: what is published is the server's own text of the value (key order, spaces, "+
			"numbers), not the text that the producer wrote", func(d definition) definition { return d.as("LONGTEXT CHARACTER SET utf8mb4") })
	}
	return &t
}

func (c *check) missing(role Column, name string) {
	none := "there is no such column"
	if others := c.mapping.Spellings[role]; others != nil {
		none += ", nor " + strings.Join(others, ", ")
	}
	switch {
	case role == Topic && c.mapping.Topic != nil:
		c.add(server.Fault, name, "there is no such column; tables[].topic makes the topic of it", "name a column of the table in tables[].topic")
	case !c.mapping.IfPresent[role]:
		fix := fmt.Sprintf("map another under tables[].columns.%s", role)
		if !slices.Contains(needed, role) {
			fix += ", or \"\" to do without"
		}
		c.add(server.Fault, name, fmt.Sprintf("%s; it is mapped as the %s", none, role), fix)
	case role == CreatedAt:
		c.change(server.Warning, name, none+": the age of rows is unknown, fallback.threshold does not apply and "+
			"the alert on old rows sees only due times", fmt.Sprintf("ADD COLUMN %s DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", Quote(name)))
	case role == MaxRetry:
		c.add(server.OK, name, none+": retry.max of the configuration, or the preset's limit, holds for every row", "")
	}
}

// keys checks primary key, sweep index and the uniqueness of message ids.
func (c *check) keys(t *Table) {
	id := strings.ToLower(t.columns[ID].Name)
	primary := c.index(func(i Index) bool { return i.Name == "PRIMARY" })
	if primary == nil || !slices.Equal(primary.Columns, []string{id}) {
		c.add(server.Fault, t.columns[ID].Name, "the primary key is not exactly this column: rows cannot be named by it",
			"map the primary key's column as the id")
	}
	if !t.LogOnly() {
		c.sweepIndex(t)
	}
	c.uniqueness(t)
}

func (c *check) uniqueness(t *Table) {
	roles := []Column{MessageID}
	if !t.Has(MessageID) {
		roles = []Column{BizType, Key}
	}
	var names, quoted []string
	for _, role := range roles {
		if name := strings.ToLower(t.columns[role].Name); !slices.Contains(names, name) { // both roles may read one column
			names, quoted = append(names, name), append(quoted, t.Column(role))
		}
	}
	guard := c.index(func(i Index) bool {
		return i.unique && !slices.ContainsFunc(i.Columns, func(column string) bool { return !slices.Contains(names, column) })
	})
	if t.guarded = guard != nil || !t.Has(MessageID); guard != nil {
		return
	}
	what := "no UNIQUE index: two rows may have one message id, and consumers would drop the second as a copy"
	if !t.Has(MessageID) {
		t.appendID = true
		what = "no UNIQUE index on what the message id is made of: the primary key is appended to it"
	}
	c.change(server.Warning, strings.Join(names, "+"), what, fmt.Sprintf("ADD UNIQUE INDEX uk_outbox_message (%s)", strings.Join(quoted, ", ")))
}

func (c *check) index(fits func(Index) bool) *Index {
	for i := range c.description.indexes {
		if fits(c.description.indexes[i]) {
			return &c.description.indexes[i]
		}
	}
	return nil
}

// values checks codes against the status column, and what the written columns hold.
func (c *check) values(t *Table) {
	if t.mapping.Grace > 0 && !t.Has(CreatedAt) {
		c.add(server.Fault, "", "grace needs to know how old a row is, and no column is mapped to created_at",
			"map one under tables[].columns.created_at, or set tables[].grace to 0")
	}
	if made := t.columns[CreatedAt]; made != nil && made.OnUpdate() {
		c.add(server.Warning, made.Name, "each change of a row sets it (ON UPDATE), so it does not say when the row was made: the age of rows, and a grace, count from their last change",
			"take ON UPDATE from the column, or map another one under tables[].columns.created_at")
	}
	c.ordering(t)
	column := t.columns[StatusCode]
	for _, one := range t.mapping.Words() {
		n, err := strconv.Atoi(one.Code)
		switch {
		case column.Kind() == KindInteger && (err != nil || strconv.Itoa(n) != one.Code):
			c.add(server.Fault, column.Name, fmt.Sprintf("code %q of %s is not a number, the column is", one.Code, one.Name), "correct tables[].codes")
		case column.Kind() == kindShort && column.Fit(one.Code) != one.Code:
			c.add(server.Fault, column.Name, fmt.Sprintf("code %q of %s does not fit into %s", one.Code, one.Name, column.fullType), "correct tables[].codes")
		}
	}
	for _, pair := range c.description.alike {
		c.add(server.Fault, column.Name, fmt.Sprintf("codes %q and %q are one and the same for the column, whose collation is %s", pair[0], pair[1], column.Collation),
			"choose other words under tables[].codes")
	}
	if t.Claims() && t.columns[LastExecTime].Fraction < 3 {
		c.modify(server.Warning, *t.columns[LastExecTime], "it keeps no milliseconds: claims of two processes within one second look alike", definition.inMilliseconds)
	}
	if reason := t.columns[FailReason]; reason != nil && reason.Characters < 64 {
		c.modify(server.Warning, *reason, fmt.Sprintf("it keeps %d characters of a reason", reason.Characters), func(d definition) definition { return d.as("VARCHAR(512)") })
	}
}

// ordering reports what the order by key costs.
func (c *check) ordering(t *Table) {
	if !t.mapping.Ordered {
		return
	}
	if due := t.columns[NextRetryTime]; due != nil && !t.Has(RetryCount) {
		c.add(server.Fault, due.Name, "ordering: key: the table has a due time and no column for the attempts. A relay that takes over cannot tell a refused row from one "+
			"that its producer delays, and later rows of its key would go out before it",
			"ALTER TABLE "+t.quoted+" ADD COLUMN retry_count INT NOT NULL DEFAULT 0, and map it to retry_count under tables[].columns; or set tables[].ordering to none")
	}
	key := t.columns[Key]
	if t.Has(ShardingKey) {
		key = t.columns[ShardingKey]
	}
	c.add(server.OK, "", "ordering: key: a key has one message at the broker at a time, and waits for a row that is refused or cannot be sent; "+
		"each start reads all rows that are not final", "")
	if t.columns[ID].Kind() != KindInteger {
		c.add(server.Warning, t.columns[ID].Name, "ordering: key: after a failure rows of a key go out in the order of their primary keys, and this one is no number that grows",
			"use an integer key, or texts that sort in the order of their making (ULID, UUIDv7)")
	}
	if t.Has(MessageID) && key.Name == t.columns[MessageID].Name {
		c.add(server.Warning, key.Name, "ordering: key: the key is the message id, so every row has its own, and there is no order to keep",
			"map the column whose rows belong together under tables[].columns.key, or set tables[].ordering to none")
	}
}

// zone decides where the DATETIME columns are.
func (c *check) zone(t *Table) {
	name := c.mapping.TimeZone
	if name == "" {
		zone := c.description.zone
		t.zone.Store(zone)
		c.add(server.OK, "", fmt.Sprintf("DATETIME columns are read in the server's default time zone %s (%s)", zone, time.Now().In(zone).Format("-07:00")), "")
		return
	}
	if !c.description.zoneKnown {
		c.add(server.Fault, "", fmt.Sprintf("the server does not know the time zone %q", name),
			"give an offset such as \"+08:00\", or load the server's zone tables with mysql_tzinfo_to_sql")
		return
	}
	location, ok := parseOffset(name)
	if !ok {
		var err error
		if location, err = time.LoadLocation(name); err != nil {
			c.add(server.Fault, "", fmt.Sprintf("this machine does not know the time zone %q", name), "give an offset such as \"+08:00\"")
			return
		}
	}
	t.zone.Store(location)
	c.add(server.OK, "", fmt.Sprintf("DATETIME columns are read in the time zone %s", name), "")
}
