package canal

import (
	"bytes"
	"strings"
	"time"

	"go.uber.org/zap"
)

// ddlVerbs is for log lines only: the flow does not depend on it.
var ddlVerbs = map[string]string{"DROP": "dropped", "CREATE": "created", "TRUNCATE": "truncated", "RENAME": "renamed"}

// wholeTables returns what a statement did, and its tables as schema.table, or its schema with a trailing dot. schema is the
// session's. For a statement that is not recognised both are empty.
func wholeTables(schema, query []byte) (done string, tables []string) {
	done = ddlVerbs[verb(bytes.TrimLeft(query, " \t\r\n"))]
	if done == "" {
		return "", nil
	}
	words := sqlWords(query)[1:]
	what := ""
	for len(words) > 0 {
		word := strings.ToUpper(words[0])
		if word == "TABLE" || word == "DATABASE" || word == "SCHEMA" {
			what = word
		} else if word != "IF" && word != "NOT" && word != "EXISTS" && word != "OR" && word != "REPLACE" {
			break
		}
		words = words[1:]
	}
	switch {
	case what == "DATABASE" || what == "SCHEMA":
		if done == "dropped" && len(words) > 0 {
			return done, []string{words[0] + "."}
		}
		return "", nil
	case what == "" && done != "truncated":
		return "", nil // a view, an index, a temporary table
	}
	for i := 0; i < len(words); i++ {
		name := string(schema) + "." + words[i]
		if i+2 < len(words) && words[i+1] == "." {
			name, i = words[i]+"."+words[i+2], i+2
		}
		tables = append(tables, name)
		if i++; done == "created" || done == "truncated" || i >= len(words) || words[i] != "," && !strings.EqualFold(words[i], "TO") {
			break
		}
	}
	return done, tables
}

// sqlWords splits the start of a statement into identifiers without quotes and single characters, at most 64. Comments are left
// out.
func sqlWords(query []byte) (words []string) {
	for len(query) > 0 && len(words) < 64 {
		switch c := query[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			query = query[1:]
		case bytes.HasPrefix(query, []byte("/*")):
			_, query, _ = bytes.Cut(query, []byte("*/"))
		case c == '`' || c == '"':
			text, rest, _ := bytes.Cut(query[1:], query[:1])
			words, query = append(words, string(text)), rest
		case identifier(c):
			n := 1
			for n < len(query) && identifier(query[n]) {
				n++
			}
			words, query = append(words, string(query[:n])), query[n:]
		default:
			words, query = append(words, string(c)), query[1:]
		}
	}
	return words
}

// noticed reports what a statement did to whole tables of ours, in the log and to Config.Noticed.
func (r *Reader) noticed(at time.Time, schema, query []byte) {
	done, tables := wholeTables(schema, query)
	for _, name := range tables {
		for _, t := range r.tables.list {
			whole := strings.EqualFold(name, t.name) && (r.tables.fold || name == t.name)
			if !whole && !(strings.HasSuffix(name, ".") && strings.HasPrefix(t.name, name)) {
				continue
			}
			r.log.Warn("a table was "+done, zap.String("table", t.name), zap.Time("at", at))
			if r.cfg.Noticed != nil {
				r.cfg.Noticed(at, t.name, done)
			}
		}
	}
}
