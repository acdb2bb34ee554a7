package definition

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// clause is what one ALTER TABLE does to the columns of a table. Its parts act in the order of the fields, whatever their order
// in the statement.
type clause struct {
	drops   []named
	renames []named
	columns []placed // in the order of the statement
	options options
	convert bool // options.charset holds for the existing columns, too
}

// named is a column by its name. to is its new name.
type named struct {
	name, to string
	exists   bool // only if it exists
}

// placed is a new or changed column.
type placed struct {
	columnText
	change string // the name before; "": new
	exists bool   // with change: only if there is one; without: only if there is none
	first  bool
	after  string
	moves  bool // it has its old place first
}

func (r *reader) alterTable() (out []Change, err error) {
	r.take("IF", "EXISTS")
	c := Change{alter: &clause{}}
	if c.Table, err = r.table(); err != nil {
		return nil, err
	}
	r.wait()
	to := ""
	for r.at < len(r.tokens) {
		if err := r.alteration(c.alter, &to); err != nil {
			return nil, err
		}
		if !r.take(",") && r.at < len(r.tokens) && !r.peek().is("PARTITION", "REMOVE") {
			return nil, r.unread("a comma")
		}
	}
	out = []Change{c}
	if to != "" {
		out = append(out, Change{Table: c.Table, to: to})
	}
	return out, nil
}

// harmlessClauses are the first words of clauses that change no columns, up to the next comma.
var harmlessClauses = []string{
	"ENGINE", "TYPE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION", "DATA", "INDEX",
	"DELAY_KEY_WRITE", "ENCRYPTION", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "STATS_AUTO_RECALC",
	"STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "STORAGE", "UNION", "PAGE_CHECKSUM", "TRANSACTIONAL", "AUTOEXTEND_SIZE", "ENGINE_ATTRIBUTE",
	"SECONDARY_ENGINE_ATTRIBUTE", "SECONDARY_ENGINE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "ALGORITHM", "LOCK", "FORCE", "ENABLE", "DISABLE", "ALTER",
	"DEFAULT", "CHARACTER", "CHAR", "CHARSET", "COLLATE",
}

// lastClauses are the first words of clauses about partitions and the like, which have commas and come last.
var lastClauses = []string{
	"PARTITION", "REMOVE", "REORGANIZE", "COALESCE", "TRUNCATE", "REBUILD", "EXCHANGE", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "DISCARD", "IMPORT", "ORDER",
}

// alteration reads one clause.
func (r *reader) alteration(c *clause, to *string) (err error) {
	switch {
	case r.takeAny("ADD"):
		return r.add(c)
	case r.takeAny("DROP"):
		return r.dropPart(c)
	case r.takeAny("CHANGE"):
		return r.change(c, true)
	case r.takeAny("MODIFY"):
		return r.change(c, false)
	case r.takeAny("RENAME"):
		return r.renamePart(c, to)
	case r.takeAny("CONVERT"):
		r.takeAny("TO")
		if !r.charsetNext() {
			return r.unread("CHARACTER SET")
		}
		c.convert = true
		return r.alterOptions(&c.options)
	case r.peek().is(lastClauses...):
		r.at = len(r.tokens)
		return nil
	case r.peek().is(harmlessClauses...), r.peek().kind == word && r.ahead(1).is("="):
		return r.alterOptions(&c.options)
	}
	return r.unread("a known clause of ALTER TABLE")
}

// alterOptions reads options up to the next comma.
func (r *reader) alterOptions(o *options) error {
	for r.at < len(r.tokens) && !r.peek().is(",", "PARTITION", "REMOVE") {
		switch {
		case r.charsetNext():
			if err := r.charset(&o.charset, &o.set); err != nil {
				return err
			}
		case r.peek().is("("):
			if err := r.group(); err != nil {
				return err
			}
		default:
			r.at++
		}
	}
	return nil
}

func (r *reader) add(c *clause) error {
	column := r.takeAny("COLUMN")
	exists := r.take("IF", "NOT", "EXISTS")
	if !column && !exists && r.peek().is("PARTITION") {
		r.at = len(r.tokens)
		return nil
	}
	if !column && r.keyNext() {
		if r.peek().is("PERIOD") {
			return errors.New("it has hidden columns")
		}
		return r.skip()
	}
	if r.take("(") {
		columns, err := r.columns()
		for _, text := range columns {
			c.columns = append(c.columns, placed{columnText: text, exists: exists})
		}
		return err
	}
	return r.placed(c, placed{exists: exists})
}

// placed reads a column and its place.
func (r *reader) placed(c *clause, p placed) (err error) {
	if p.columnText, err = r.column(); err != nil {
		return err
	}
	if r.takeAny("FIRST") {
		p.first = true
	} else if r.takeAny("AFTER") {
		if p.after, err = r.name(); err != nil {
			return err
		}
	}
	c.columns = append(c.columns, p)
	return nil
}

func (r *reader) change(c *clause, renames bool) (err error) {
	r.takeAny("COLUMN")
	p := placed{exists: r.take("IF", "EXISTS")}
	p.change = r.peek().text
	if !r.peek().name() {
		return r.unread("a name")
	}
	if renames {
		r.at++
	}
	return r.placed(c, p)
}

func (r *reader) dropPart(c *clause) (err error) {
	column := r.takeAny("COLUMN")
	exists := r.take("IF", "EXISTS")
	if !column && (r.peek().is("INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK") || r.peek().is("PERIOD") && r.ahead(1).is("FOR")) {
		return r.skip()
	}
	if !column && r.peek().is("PARTITION") {
		r.at = len(r.tokens)
		return nil
	}
	if r.peek().is("SYSTEM") && r.ahead(1).is("VERSIONING") {
		return errors.New("it has hidden columns")
	}
	d := named{exists: exists}
	if d.name, err = r.name(); err == nil {
		r.takeAny("RESTRICT", "CASCADE")
		c.drops = append(c.drops, d)
	}
	return err
}

func (r *reader) renamePart(c *clause, to *string) (err error) {
	switch {
	case r.takeAny("INDEX", "KEY"):
		return r.skip()
	case r.takeAny("COLUMN"):
		n := named{exists: r.take("IF", "EXISTS")}
		if n.name, err = r.name(); err != nil {
			return err
		}
		if !r.takeAny("TO") {
			return r.unread("TO")
		}
		n.to, err = r.name()
		c.renames = append(c.renames, n)
		return err
	}
	r.takeAny("TO", "AS", "=")
	*to, err = r.table()
	return err
}

// apply returns the table after the statement.
func (c *clause) apply(old State) (State, error) {
	if old.Table == nil {
		return State{}, errors.New("the columns before it are not known")
	}
	now := &Table{Charset: old.Table.Charset}
	if c.options.set {
		now.Charset = c.options.charset
	}
	rest := slices.DeleteFunc(slices.Clone(c.columns), func(p placed) bool { return p.change == "" && p.exists && old.Table.find(p.Name) >= 0 })
	for _, column := range old.Table.Columns {
		if c.convert && hasCharset(column.Type) {
			column.Charset = now.Charset
			column = inCharset(column)
		}
		if slices.ContainsFunc(c.drops, func(n named) bool { return strings.EqualFold(n.name, column.Name) }) {
			continue
		}
		if i := slices.IndexFunc(rest, func(p placed) bool { return strings.EqualFold(p.change, column.Name) }); i >= 0 {
			now.Columns = append(now.Columns, rest[i].in(now.Charset))
			if rest[i].first || rest[i].after != "" {
				rest[i].change, rest[i].exists, rest[i].moves = "", false, true
			} else {
				rest = slices.Delete(rest, i, i+1)
			}
			continue
		}
		for _, n := range c.renames {
			if strings.EqualFold(n.name, column.Name) {
				column.Name = n.to
				break
			}
		}
		now.Columns = append(now.Columns, column)
	}
	if err := c.missing(old.Table); err != nil {
		return State{}, err
	}
	added := map[string]bool{}
	for _, p := range rest {
		if err := now.place(p, added); err != nil {
			return State{}, err
		}
	}
	return State{Table: now, Known: true}, nil
}

// missing reports columns that the statement names and the table does not have: the server refused no such statement, so the
// definition is wrong.
func (c *clause) missing(t *Table) error {
	for _, list := range [][]named{c.drops, c.renames} {
		for _, n := range list {
			if t.find(n.name) < 0 && !n.exists {
				return fmt.Errorf("it names the column %s, which is not known", n.name)
			}
		}
	}
	return nil
}

// place inserts a column. added are those that the statement has added so far: MariaDB lets a later clause modify them.
func (t *Table) place(p placed, added map[string]bool) error {
	name := strings.ToLower(p.Name)
	found := t.find(p.Name)
	if p.change != "" {
		if p.exists {
			return nil
		}
		if found < 0 || !added[name] {
			return fmt.Errorf("it names the column %s, which is not known", p.change)
		}
		p.moves = true
	}
	if p.moves {
		t.Columns = slices.Delete(t.Columns, found, found+1)
		found = -1
	}
	at := len(t.Columns)
	switch {
	case found >= 0 && p.exists:
		return nil
	case found >= 0:
		return fmt.Errorf("it adds the column %s a second time", p.Name)
	case p.first:
		at = 0
	case p.after != "":
		if at = t.find(p.after) + 1; at == 0 {
			return fmt.Errorf("it names the column %s, which is not known", p.after)
		}
	}
	added[name] = true
	t.Columns = slices.Insert(t.Columns, at, p.in(t.Charset))
	return nil
}
