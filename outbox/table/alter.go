package table

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// What a table needs is one ALTER TABLE, because each one may rebuild it. A column that is changed keeps everything that the statement does
// not name: MODIFY COLUMN drops a COMMENT, a DEFAULT and an ON UPDATE that it does not repeat.

// clause is a part of the table's ALTER TABLE.
type clause struct {
	column  string // lower case; "" when it is about no column
	text    string
	finding int // which it belongs to
}

// change adds a finding that a clause fixes.
func (c *check) change(severity server.Severity, part, what, text string) {
	c.clauses = append(c.clauses, clause{text: text, finding: len(c.findings)})
	c.add(severity, part, what, "")
}

// modify is change for the definition of a column. Two changes of one column become one clause.
func (c *check) modify(severity server.Severity, t ColumnType, what string, to func(definition) definition) {
	name := strings.ToLower(t.Name)
	d, known := c.description.definitions[name]
	if !known { // the account may not see it
		if d = (definition{kind: t.fullType}); !t.Nullable {
			d.rest = " NOT NULL"
		}
	}
	d = to(d)
	if c.description.definitions == nil {
		c.description.definitions = map[string]definition{}
	}
	c.description.definitions[name] = d
	text := fmt.Sprintf("MODIFY COLUMN %s %s%s", Quote(t.Name), d.kind, d.rest)
	if i := slices.IndexFunc(c.clauses, func(one clause) bool { return one.column == name }); i >= 0 {
		c.clauses[i].text = text
		c.add(severity, t.Name, what, "")
		c.clauses = append(c.clauses, clause{column: name, finding: len(c.findings) - 1}) // for the reference to the statement
		return
	}
	c.clauses = append(c.clauses, clause{column: name, text: text, finding: len(c.findings)})
	c.add(severity, t.Name, what, "")
}

// alter gives the first finding that a clause fixes the statement with all clauses, and the others a reference to it.
func (c *check) alter() {
	var texts []string
	for _, one := range c.clauses {
		if one.text != "" {
			texts = append(texts, one.text)
		}
	}
	for n, one := range c.clauses {
		f := &c.findings[one.finding]
		if n > 0 {
			f.Fix = otherClause + c.subject + " above"
			continue
		}
		f.Fix = "ALTER TABLE " + Quote(c.description.schema) + "." + Quote(c.description.name) + "\n  " + strings.Join(texts, ",\n  ")
		f.SQL = f.Fix
	}
}

// otherClause begins the Fix of a finding whose clause is in the statement of another one.
const otherClause = "the ALTER TABLE of "

// unbound reports whether there is a fault that no clause fixes: without it the rest of the table can be looked at, so that its ALTER TABLE
// is complete.
func (c *check) unbound() bool {
	for i, f := range c.findings {
		if f.Severity == server.Fault && !slices.ContainsFunc(c.clauses, func(one clause) bool { return one.finding == i }) {
			return true
		}
	}
	return false
}

// definition is what SHOW CREATE TABLE prints behind a column's name.
type definition struct {
	kind string // the type without the character set
	rest string // everything else, with a space before it; "" for nothing
}

func (d definition) String() string { return d.kind + d.rest }

// describeDefinitions reads the columns from SHOW CREATE TABLE, by their names in lower case. information_schema shows defaults and
// expressions in forms that differ between servers. An account that may not see them gets none.
func describeDefinitions(ctx context.Context, db server.Querier, schema, name string) (map[string]definition, error) {
	rows, err := server.Show(ctx, db, "SHOW CREATE TABLE "+Quote(schema)+"."+Quote(name))
	if server.Code(err) != 0 {
		return nil, nil
	}
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return parseDefinitions(rows[0]["create table"]), nil // a view has none
}

// parseDefinitions reads the lines of a CREATE TABLE statement that begin with a quoted name. Both servers print one column in one line.
func parseDefinitions(ddl string) map[string]definition {
	all := map[string]definition{}
	for line := range strings.SplitSeq(ddl, "\n") {
		line = strings.TrimSuffix(strings.TrimSpace(line), ",")
		if !strings.HasPrefix(line, "`") {
			continue
		}
		end := 1
		for end < len(line) && (line[end] != '`' || strings.HasPrefix(line[end:], "``")) {
			if line[end] == '`' {
				end++
			}
			end++
		}
		if end+2 > len(line) {
			continue
		}
		name := strings.ReplaceAll(line[1:end], "``", "`")
		kind := typeOf(strings.TrimSpace(line[end+1:]))
		all[strings.ToLower(name)] = definition{kind: kind, rest: strings.TrimSpace(line[end+1:])[len(kind):]}
	}
	return all
}

// typeOf is the beginning of a definition up to the first space outside of brackets and quotes.
func typeOf(text string) string {
	depth, quoted := 0, false
	for i := range len(text) {
		switch b := text[i]; {
		case b == '\'':
			quoted = !quoted
		case quoted:
		case b == '(':
			depth++
		case b == ')':
			depth--
		case b == ' ' && depth == 0:
			return text[:i]
		}
	}
	return text
}

var (
	characterSet = regexp.MustCompile(`^( CHARACTER SET \w+)?( COLLATE (\w+))?`)
	compressed   = regexp.MustCompile(` ?/\*M?!\d+ COMPRESSED\*/`)
	timestampNow = regexp.MustCompile(`(?i)\bcurrent_timestamp\b(\(\d*\))?`)
)

// inUTF8 keeps a collation that compares bytes.
func (d definition) inUTF8() definition {
	set := characterSet.FindStringSubmatch(d.rest)
	rest := d.rest[len(set[0]):]
	if strings.HasSuffix(set[3], "_bin") {
		rest = " COLLATE utf8mb4_bin" + rest
	}
	return definition{d.kind, " CHARACTER SET utf8mb4" + rest}
}

func (d definition) uncompressed() definition {
	return definition{d.kind, compressed.ReplaceAllString(d.rest, "")}
}

// as has another type; a text type keeps its character set.
func (d definition) as(kind string) definition { return definition{kind, d.rest} }

// inMilliseconds is for DATETIME and TIMESTAMP. A default of the current time must have the same number of digits (error 1067).
func (d definition) inMilliseconds() definition {
	kind, _, _ := strings.Cut(d.kind, "(")
	before, comment, has := strings.Cut(d.rest, " COMMENT '")
	rest := timestampNow.ReplaceAllString(before, "CURRENT_TIMESTAMP(3)")
	if has {
		rest += " COMMENT '" + comment
	}
	return definition{kind + "(3)", rest}
}
