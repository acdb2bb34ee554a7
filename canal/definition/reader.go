package definition

import (
	"fmt"
	"strings"
)

// reader goes over the tokens of a statement.
type reader struct {
	Statement
	tokens []token
	at     int
}

func (r *reader) ahead(n int) token {
	if r.at+n < len(r.tokens) {
		return r.tokens[r.at+n]
	}
	return token{}
}

func (r *reader) peek() token { return r.ahead(0) }

// take skips a sequence of keywords if it is next.
func (r *reader) take(words ...string) bool {
	for i, w := range words {
		if !r.ahead(i).is(w) {
			return false
		}
	}
	r.at += len(words)
	return true
}

// takeAny skips one token if it is one of these keywords.
func (r *reader) takeAny(words ...string) bool {
	if !r.peek().is(words...) {
		return false
	}
	r.at++
	return true
}

// unread is the error for what is written here.
func (r *reader) unread(wanted string) error {
	got := r.peek().text
	if r.peek().kind == end {
		got = "the end"
	}
	return fmt.Errorf("%q stands where %s is expected", got, wanted)
}

func (r *reader) name() (string, error) {
	t := r.peek()
	if !t.name() {
		return "", r.unread("a name")
	}
	r.at++
	return t.text, nil
}

// table reads the name of a table and returns it with its schema.
func (r *reader) table() (string, error) {
	name, err := r.name()
	if err != nil {
		return "", err
	}
	schema := r.Schema
	if r.take(".") {
		schema = name
		if name, err = r.name(); err != nil {
			return "", err
		}
	}
	full := schema + "." + name
	if r.Server.Fold {
		full = strings.ToLower(full)
	}
	return full, nil
}

// group skips what is in parentheses; the opening one is next.
func (r *reader) group() error {
	if !r.peek().is("(") {
		return r.unread("(")
	}
	for depth := 0; r.at < len(r.tokens); r.at++ {
		switch {
		case r.peek().is("("):
			depth++
		case r.peek().is(")"):
			if depth--; depth == 0 {
				r.at++
				return nil
			}
		}
	}
	return r.unread(")")
}

// skip goes to the next comma or closing parenthesis on this level, or to the end.
func (r *reader) skip() error {
	for r.at < len(r.tokens) && !r.peek().is(",", ")") {
		if r.peek().is("(") {
			if err := r.group(); err != nil {
				return err
			}
			continue
		}
		r.at++
	}
	return nil
}

// wait skips MariaDB's limits for waiting.
func (r *reader) wait() {
	if r.takeAny("WAIT") {
		r.at++
	} else {
		r.takeAny("NOWAIT")
	}
}

// harmless are the first words of statements that change no table's columns.
var harmless = []string{
	"GRANT", "REVOKE", "ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "CHECK", "SET", "USE", "LOCK", "UNLOCK", "ROLLBACK", "RELEASE", "SAVEPOINT", "TRUNCATE",
	"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD",
}

// Read returns what a statement does to the columns of tables, in order. An error means that it may do anything to the tables
// that it names.
func Read(s Statement) ([]Change, error) {
	tokens, err := s.tokens()
	if err != nil {
		return nil, err
	}
	for len(tokens) > 0 && tokens[len(tokens)-1].is(";") {
		tokens = tokens[:len(tokens)-1]
	}
	r := &reader{Statement: s, tokens: tokens}
	var out []Change
	switch {
	case r.takeAny("ALTER"):
		for r.takeAny("ONLINE", "IGNORE") {
		}
		if !r.takeAny("TABLE") {
			return nil, nil // a database, a view, a user, ...
		}
		out, err = r.alterTable()
	case r.takeAny("CREATE"):
		out, err = r.create()
	case r.takeAny("DROP"):
		out, err = r.drop()
	case r.takeAny("RENAME"):
		out, err = r.rename()
	case r.peek().is(harmless...):
		return nil, nil
	default:
		return nil, r.unread("a known statement")
	}
	if err == nil && r.at < len(r.tokens) {
		err = r.unread("the end")
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (r *reader) drop() (out []Change, err error) {
	if r.takeAny("DATABASE", "SCHEMA") {
		r.take("IF", "EXISTS")
		name, err := r.name()
		if r.Server.Fold {
			name = strings.ToLower(name)
		}
		return []Change{{Table: name + ".", dropped: true}}, err
	}
	if !r.takeAny("TABLE", "TABLES") {
		r.at = len(r.tokens)
		return nil, nil // a temporary table, an index, a view, ...
	}
	r.take("IF", "EXISTS")
	for more := true; more; more = r.take(",") {
		name, err := r.table()
		if err != nil {
			return nil, err
		}
		out = append(out, Change{Table: name, dropped: true})
	}
	r.wait()
	r.takeAny("RESTRICT", "CASCADE")
	return out, nil
}

func (r *reader) rename() (out []Change, err error) {
	if !r.takeAny("TABLE", "TABLES") {
		r.at = len(r.tokens)
		return nil, nil // a user
	}
	exists := r.take("IF", "EXISTS")
	for more := true; more; more = r.take(",") {
		c := Change{absent: exists}
		if c.Table, err = r.table(); err != nil {
			return nil, err
		}
		r.wait()
		if !r.takeAny("TO") {
			return nil, r.unread("TO")
		}
		if c.to, err = r.table(); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
