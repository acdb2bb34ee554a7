package table

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// IsPattern reports whether a configured name, schema.table, stands for several tables.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*{}") }

// SplitName splits schema.table, also where the schema holds the dots of a range. found is false where there is no dot between them.
func SplitName(name string) (schema, table string, found bool) {
	depth := 0
	for i, c := range name {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		case '.':
			if depth == 0 {
				return name[:i], name[i+1:], true
			}
		}
	}
	return name, "", false
}

// CheckPattern returns what is wrong with a pattern: `*` stands for any characters, `{00..63}` for each number, written with as many
// digits as the first, and `{a,b}` for each of the words.
func CheckPattern(name string) error {
	schema, table, _ := SplitName(name)
	_, err := compilePattern(schema, table)
	return err
}

// maxRange bounds what one pair of braces stands for.
const maxRange = 10_000

// compilePattern makes the expression that whole names of tables, schema.table, match.
func compilePattern(schema, table string) (*regexp.Regexp, error) {
	one, err := expression(schema)
	if err != nil {
		return nil, err
	}
	two, err := expression(table)
	if err != nil {
		return nil, err
	}
	return regexp.Compile(`^` + one + `\.` + two + `$`)
}

func expression(part string) (string, error) {
	var b strings.Builder
	for part != "" {
		i := strings.IndexAny(part, "*{}")
		if i < 0 {
			i = len(part)
		}
		b.WriteString(regexp.QuoteMeta(part[:i]))
		if part = part[i:]; part == "" {
			break
		}
		if part[0] == '*' {
			b.WriteString(`[^.]*`)
			part = part[1:]
			continue
		}
		end := strings.IndexByte(part, '}')
		if part[0] == '}' || end < 2 || strings.ContainsAny(part[1:end], "*{") {
			return "", errors.New("a brace stands alone or holds nothing: write {00..63} or {a,b}")
		}
		words, err := alternatives(part[1:end])
		if err != nil {
			return "", err
		}
		for i := range words {
			words[i] = regexp.QuoteMeta(words[i])
		}
		b.WriteString("(?:" + strings.Join(words, "|") + ")")
		part = part[end+1:]
	}
	return b.String(), nil
}

// alternatives lists what braces stand for.
func alternatives(text string) ([]string, error) {
	from, to, ranged := strings.Cut(text, "..")
	if !ranged {
		return strings.Split(text, ","), nil
	}
	first, err1 := strconv.ParseUint(from, 10, 32)
	last, err2 := strconv.ParseUint(to, 10, 32)
	if err1 != nil || err2 != nil || last < first || last-first >= maxRange {
		return nil, fmt.Errorf("{%s} is no range of numbers: write {00..63}, with at most %d numbers", text, maxRange)
	}
	var words []string
	for n := first; n <= last; n++ {
		words = append(words, fmt.Sprintf("%0*d", len(from), n))
	}
	return words, nil
}

// Expand puts the tables that exist now in the place of mappings with a pattern, in the order of their names; other mappings stay as
// they are. A table that a mapping names exactly belongs to that one. Names that begin with an underscore are left out,
// unless the pattern does: such are the copies that tools for schema changes make. So are tables that old rows of another one
// move to. A pattern without a table and a table of two patterns are faults. The error is of the conversation with the server.
func Expand(ctx context.Context, db *sql.DB, mappings []Mapping) (all []Mapping, findings []server.Finding, err error) {
	taken := map[string]string{} // table -> the configured name that it belongs to
	for _, m := range mappings {
		if name := m.Schema + "." + m.Name; !IsPattern(name) {
			taken[name] = name
		}
	}
	if len(taken) == len(mappings) {
		return mappings, nil, nil
	}
	names, err := tableNames(ctx, db)
	if err != nil {
		return nil, nil, fmt.Errorf("list the tables: %w", err)
	}
	for _, m := range mappings {
		name := m.Schema + "." + m.Name
		if !IsPattern(name) {
			all = append(all, m)
			continue
		}
		fault := func(what, fix string) {
			findings = append(findings, server.Finding{Severity: server.Fault, Subject: name, What: what, Fix: fix})
		}
		expression, err := compilePattern(m.Schema, m.Name)
		if err != nil {
			fault(err.Error(), "correct tables[].name")
			continue
		}
		found := 0
		for _, n := range names {
			whole := n[0] + "." + n[1]
			switch other := taken[whole]; {
			case !expression.MatchString(whole) || other == whole || strings.HasPrefix(n[1], "_") && !strings.HasPrefix(m.Name, "_"):
			case isMoved(names, n):
			case other != "":
				fault(fmt.Sprintf("table %s belongs to the pattern %s too", whole, other), "make one of the patterns narrower")
			default:
				taken[whole] = name
				one := m
				one.Schema, one.Name = n[0], n[1]
				all = append(all, one)
				found++
			}
		}
		if found == 0 {
			fault("the pattern matches no table that the account may see", "make the tables, grant SELECT and UPDATE on them, or correct tables[].name")
		}
	}
	return all, findings, nil
}

// tableNames lists schema and name of each table that the account may see.
func tableNames(ctx context.Context, db *sql.DB) (names [][2]string, err error) {
	query := Text("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' ",
		"AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema')")
	var n [2]string
	err = query.Each(ctx, db, []any{&n[0], &n[1]}, func() error {
		names = append(names, n)
		return nil
	})
	slices.SortFunc(names, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return names, err
}
