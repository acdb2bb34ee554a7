package definition

import (
	"fmt"
	"slices"
	"strings"
)

// Column is a column of a table as information_schema.COLUMNS has it.
type Column struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // DATA_TYPE in lower case
	Unsigned bool   `json:"unsigned,omitempty"`
	Charset  string `json:"charset,omitempty"` // "": none, or unknown
}

// Table is a table's definition. Its columns are in ordinal order.
type Table struct {
	Columns []Column `json:"columns"`
	Charset string   `json:"charset,omitempty"` // the default of new columns; "": unknown
}

func (t *Table) find(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
}

// Charset is how the bytes of a statement form characters, as far as it matters for finding its end of strings.
type Charset uint8

const (
	Unread Charset = iota // only statements in ASCII are read
	UTF8                  // also ascii
	Narrow                // one byte is one character, such as latin1
	Wide                  // gbk, big5, gb18030: a byte above 0x80 may be followed by any other
)

// Server says which dialect a statement is in.
type Server struct {
	MariaDB bool
	Version int  // as in comments: 80031, 101108
	Fold    bool // lower_case_table_names is not 0: names of tables differ in letter case
}

// Statement is a statement as the log has it, with what the log says about the session that ran it.
type Statement struct {
	SQL                            []byte
	Schema                         string // the default database
	ANSIQuotes, NoBackslashEscapes bool   // of sql_mode
	Charset                        Charset
	Server                         Server
}

// Change is what a statement does to one table. A statement may have several; they act in their order.
type Change struct {
	Table string // schema.table; schema. for all tables of a dropped database

	to      string  // the table's new name
	dropped bool    // it is no more
	like    string  // it is created with this table's columns
	created *Table  // it is created
	absent  bool    // with to: only if it exists; else only if it does not
	alter   *clause // its columns change
}

// Names lists the tables of a change.
func (c *Change) Names() []string {
	names := []string{c.Table}
	for _, more := range []string{c.to, c.like} {
		if more != "" {
			names = append(names, more)
		}
	}
	return names
}

// Source is the table whose definition decides about that of the result: of a copy or a rename; else "".
func (c *Change) Source() (source, target string) {
	switch {
	case c.to != "":
		return c.Table, c.to
	case c.like != "":
		return c.like, c.Table
	}
	return "", c.Table
}

// State is what is known about a table.
type State struct {
	Table *Table // nil: see Known
	Known bool   // with a nil Table: there is no such table
}

// Apply returns the states after a change. state returns those before it; set takes the new ones. The error says why a table's
// definition is not known afterwards; its new state is then unknown, too.
func (c *Change) Apply(state func(name string) State, set func(name string, s State)) error {
	old := state(c.Table)
	switch {
	case c.dropped:
		set(c.Table, State{Known: true})
	case c.to != "" && c.absent && old.Known && old.Table == nil: // IF EXISTS
	case c.to != "":
		set(c.to, old)
		set(c.Table, State{Known: true})
	case c.alter != nil:
		now, err := c.alter.apply(old)
		set(c.Table, now)
		return err
	case c.absent && old.Table != nil:
	case c.absent && !old.Known:
		set(c.Table, State{})
		return fmt.Errorf("%s may have existed before", c.Table)
	case c.like != "":
		source := state(c.like)
		if source.Table == nil {
			source.Known = false
		}
		set(c.Table, source)
	default:
		set(c.Table, State{Table: c.created, Known: true})
	}
	return nil
}
