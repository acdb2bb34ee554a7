package definition

import (
	"strconv"
	"strings"
)

// columnText is a column as a statement defines it.
type columnText struct {
	Column
	explicit bool // Charset is the statement's; else the table's default holds
}

// in returns the column in a table with a default character set.
func (c columnText) in(charset string) Column {
	out := c.Column
	if !c.explicit {
		out.Charset = charset
	}
	return inCharset(out)
}

// inCharset corrects a column whose type has no character set, or has another name in the character set binary.
func inCharset(c Column) Column {
	if c.Charset == "binary" && binaries[c.Type] != "" {
		c.Type = binaries[c.Type]
	}
	if !hasCharset(c.Type) {
		c.Charset = ""
	}
	return c
}

// column reads name, type and attributes.
func (r *reader) column() (c columnText, err error) {
	if c.Name, err = r.name(); err != nil {
		return c, err
	}
	if err = r.columnType(&c); err != nil {
		return c, err
	}
	for {
		more, err := r.attribute(&c)
		if err != nil || !more {
			return c, err
		}
	}
}

func (r *reader) columnType(c *columnText) error {
	national := r.takeAny("NATIONAL") || r.peek().is("NCHAR", "NVARCHAR")
	t := r.peek()
	c.Type = typeNames[strings.ToLower(t.text)]
	if t.kind != word || c.Type == "" {
		return r.unread("a known type")
	}
	r.at++
	switch {
	case c.Type == "char" && r.takeAny("VARYING", "VARCHAR", "VARCHARACTER"):
		c.Type = "varchar"
	case t.is("DOUBLE"):
		r.takeAny("PRECISION")
	case t.is("LONG"):
		if r.takeAny("VARBINARY") {
			c.Type = "mediumblob"
		} else if !r.takeAny("VARCHAR", "VARCHARACTER") && r.takeAny("CHAR", "CHARACTER") && !r.takeAny("VARYING") {
			return r.unread("VARYING")
		}
	case t.is("SERIAL"):
		c.Unsigned = true
	case c.Type == "json" && r.Server.MariaDB:
		c.Type, c.Charset, c.explicit = "longtext", "utf8mb4", true
	}
	if national {
		c.Charset, c.explicit = "utf8mb3", true
	}
	if !r.peek().is("(") {
		return nil
	}
	if n, err := strconv.Atoi(r.ahead(1).text); t.is("FLOAT") && err == nil && n > 24 && r.ahead(2).is(")") {
		c.Type = "double"
	}
	return r.group()
}

// Attributes without a part that matters here. Those of a line take a value of that kind.
var (
	flags = []string{
		"SIGNED", "BINARY", "NULL", "AUTO_INCREMENT", "UNIQUE", "PRIMARY", "KEY", "VIRTUAL", "STORED", "PERSISTENT", "VISIBLE", "INVISIBLE",
		"ENFORCED", "NOT", "GENERATED", "ALWAYS", "SECONDARY",
	}
	valued = []string{"COMMENT", "COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "SRID", "REF_SYSTEM_ID"}
)

// attribute reads one attribute of a column; more is false when none is next.
func (r *reader) attribute(c *columnText) (more bool, err error) {
	switch {
	case r.peek().kind == end, r.peek().is(",", ")", "FIRST", "AFTER", "PARTITION", "REMOVE"):
		return false, nil
	case r.takeAny("UNSIGNED", "ZEROFILL"):
		c.Unsigned = true
	case r.takeAny("ASCII"):
		c.Charset, c.explicit = "latin1", true
	case r.takeAny("UNICODE"):
		c.Charset, c.explicit = "ucs2", true
	case r.takeAny("BYTE"):
		c.Charset, c.explicit = "binary", true
	case r.charsetNext():
		return true, r.charset(&c.Charset, &c.explicit)
	case r.takeAny("DEFAULT"):
		return true, r.operand()
	case r.takeAny("ON"):
		r.at++ // UPDATE, DELETE
		r.takeAny("SET", "NO")
		return true, r.operand()
	case r.takeAny("AS"), r.takeAny("CHECK"):
		return true, r.group()
	case r.takeAny("CONSTRAINT"):
		if !r.peek().is("CHECK") {
			_, err = r.name()
		}
		return true, err
	case r.takeAny("REFERENCES"):
		return true, r.references()
	case r.take("WITH", "SYSTEM", "VERSIONING"), r.take("WITHOUT", "SYSTEM", "VERSIONING"), r.take("SERIAL", "DEFAULT", "VALUE"):
	case r.takeAny("COMPRESSED"):
		if r.take("=") {
			r.at++
		}
	case r.takeAny(valued...):
		r.take("=")
		r.at++
	case r.takeAny(flags...):
	case r.peek().kind == word && r.ahead(1).is("="): // an attribute of MariaDB's engines
		r.at += 3
	default:
		return false, r.unread("an attribute of a column")
	}
	return true, nil
}

// operand reads a value: a literal, a function, or an expression in parentheses.
func (r *reader) operand() error {
	for r.takeAny("+", "-") {
	}
	switch t := r.peek(); {
	case t.is("("):
		return r.group()
	case t.kind == text:
		for r.peek().kind == text {
			r.at++
		}
	case t.kind == number, t.kind == quoted:
		r.at++
	case t.kind == word:
		r.at++
		if r.peek().kind == text { // _utf8mb4'a', x'00'
			r.at++
		} else if r.peek().is("(") {
			return r.group()
		}
	default:
		return r.unread("a value")
	}
	return nil
}

func (r *reader) references() error {
	if _, err := r.table(); err != nil {
		return err
	}
	if r.peek().is("(") {
		if err := r.group(); err != nil {
			return err
		}
	}
	if r.takeAny("MATCH") {
		r.at++
	}
	return nil // ON DELETE and ON UPDATE are read as attributes
}

// charsetNext reports whether a character set or a collation is next, perhaps after DEFAULT.
func (r *reader) charsetNext() bool {
	n := 0
	if r.peek().is("DEFAULT") {
		n = 1
	}
	return r.ahead(n).is("CHARSET", "COLLATE") || r.ahead(n).is("CHARACTER", "CHAR") && r.ahead(n+1).is("SET")
}

// charset reads what charsetNext saw. A collation without the name of a character set changes none.
func (r *reader) charset(to *string, explicit *bool) error {
	r.takeAny("DEFAULT")
	collation := r.peek().is("COLLATE")
	if r.at++; !collation {
		r.takeAny("SET")
	}
	r.take("=")
	t := r.peek()
	if t.kind != word && t.kind != quoted && t.kind != text {
		return r.unread("a character set or a collation")
	}
	r.at++
	name := canonical(t.text)
	if collation {
		if name = CharsetOf(t.text); name == "" {
			return nil
		}
	}
	if t.is("DEFAULT") {
		name = unknownCharset
	}
	*to, *explicit = name, true
	return nil
}
