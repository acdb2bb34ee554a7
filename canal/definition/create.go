package definition

import "errors"

var errDerived = errors.New("its columns come from a query")

// keyNext reports whether an index, a constraint or the like is next in a list of columns.
func (r *reader) keyNext() bool {
	t, after := r.peek(), r.ahead(1)
	return t.is("INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK") ||
		t.is("VECTOR") && after.is("INDEX", "KEY") || t.is("PERIOD") && after.is("FOR")
}

func (r *reader) create() ([]Change, error) {
	var c Change
	r.take("OR", "REPLACE")
	if r.takeAny("TEMPORARY") {
		return nil, errors.New("it creates a temporary table, which hides another for its session")
	}
	if !r.takeAny("TABLE") {
		r.at = len(r.tokens)
		return nil, nil // an index, a view, a trigger, ...
	}
	c.absent = r.take("IF", "NOT", "EXISTS")
	var err error
	if c.Table, err = r.table(); err != nil {
		return nil, err
	}
	inner := r.take("(", "LIKE")
	if inner || r.takeAny("LIKE") {
		c.like, err = r.table()
		if inner && err == nil && !r.take(")") {
			err = r.unread(")")
		}
		return []Change{c}, err
	}
	if !r.take("(") {
		return nil, errDerived
	}
	columns, err := r.columns()
	if err != nil {
		return nil, err
	}
	var o options
	if err := r.options(&o); err != nil {
		return nil, err
	}
	c.created = &Table{Charset: o.charset}
	for _, column := range columns {
		c.created.Columns = append(c.created.Columns, column.in(o.charset))
	}
	return []Change{c}, nil
}

// columns reads a list of columns up to its closing parenthesis, and skips keys in it.
func (r *reader) columns() (out []columnText, err error) {
	for more := true; more; more = r.take(",") {
		if r.keyNext() {
			if err := r.skip(); err != nil {
				return nil, err
			}
			continue
		}
		c, err := r.column()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if !r.take(")") {
		return nil, r.unread(")")
	}
	return out, nil
}

// options are those of a table that matter here.
type options struct {
	charset string
	set     bool
}

// options reads the options of a table to the end of the statement.
func (r *reader) options(o *options) error {
	for r.at < len(r.tokens) {
		switch {
		case r.charsetNext():
			if err := r.charset(&o.charset, &o.set); err != nil {
				return err
			}
		case r.peek().is("SELECT", "AS", "IGNORE", "REPLACE", "VALUES", "TABLE", ";"):
			return errDerived
		case r.take("WITH", "SYSTEM", "VERSIONING"), r.peek().is("SEQUENCE"):
			return errors.New("it has hidden columns")
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
