package query

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// statusValue is a value of the status column.
type statusValue struct {
	code  string
	null  bool
	rows  int64  // up to table.MaxCount
	means string // the name of the configuration; "" for none: the relay never touches such a row
}

func (v statusValue) String() string {
	text, rows := strconv.Quote(v.code), fmt.Sprintf("%d rows", v.rows)
	switch {
	case v.null:
		text = "NULL"
	case v.means == "":
	default:
		text += " " + v.means
	}
	switch {
	case v.rows == 1:
		rows = "1 row"
	case v.rows >= table.MaxCount:
		rows += " or more"
	}
	return text + " (" + rows + ")"
}

// maxValues bounds how many values without a name are listed.
const maxValues = 10

// CheckStatusValues says which values the status column has, in how many rows each, and what each means to the relay. A value that the
// configuration does not name is a warning: such rows are never sent. It reads table.MaxCount entries of the status index for each name, and
// as many for all values without one.
func CheckStatusValues(ctx context.Context, db *sql.DB, of *table.Table) ([]server.Finding, error) {
	t := &mapped{of}
	if t.LogOnly() {
		return nil, nil
	}
	var named, unknown []statusValue
	for _, word := range t.Mapping().Words() {
		v := statusValue{code: word.Code, means: word.Name}
		query := t.sample("1", t.whereCode(word.Code), "")
		query.Limit(table.MaxCount)
		query = query.Inside("COUNT(*)")
		if err := query.One(ctx, db, &v.rows); err != nil {
			return nil, fmt.Errorf("count the rows of %s with status %q: %w", t.Name(), word.Code, err)
		}
		named = append(named, v)
	}
	query := t.sample(t.Column(table.StatusCode)+" AS code", t.whereHeld(), "")
	query.Limit(table.MaxCount)
	query = query.Inside("code, COUNT(*)")
	query.Add(" GROUP BY code ORDER BY COUNT(*) DESC LIMIT ", strconv.Itoa(maxValues))
	var code sql.NullString
	var n int64
	err := query.Each(ctx, db, []any{&code, &n}, func() error {
		unknown = append(unknown, statusValue{code: code.String, null: !code.Valid, rows: n})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for status values of %s without a name: %w", t.Name(), err)
	}
	return t.judgeValues(named, unknown), nil
}

func (t *mapped) judgeValues(named, unknown []statusValue) []server.Finding {
	subject := t.Name() + "." + t.Type(table.StatusCode).Name
	list := func(all []statusValue) string {
		texts := make([]string, len(all))
		for i, v := range all {
			texts[i] = v.String()
		}
		return strings.Join(texts, ", ")
	}
	findings := []server.Finding{{Severity: server.OK, Subject: subject, What: "status values: " + list(named), Fix: t.suggestFailed(unknown)}}
	if len(unknown) > 0 {
		findings = append(findings, server.Finding{
			Severity: server.Warning, Subject: subject, What: "status unknown to the relay, which never sends such rows: " + list(unknown),
			Fix: fmt.Sprintf("name each value under tables[].codes: as pending, sending, sent or failed, such as codes: {pending: %q}, or, where it is a state of "+
				"your own, by a name of your choice", unknown[0].code),
		})
	}
	return findings
}

// suggestFailed is the configuration that gives rows which are refused for good a code, where none is mapped and the column has room for one
// that no row has; "" otherwise.
func (t *mapped) suggestFailed(unknown []statusValue) string {
	if t.Fails() {
		return ""
	}
	used := func(code string) bool {
		return slices.ContainsFunc(t.Mapping().Words(), func(w table.Word) bool { return strings.EqualFold(w.Code, code) }) ||
			slices.ContainsFunc(unknown, func(v statusValue) bool { return strings.EqualFold(v.code, code) })
	}
	code := "FAILED"
	if column := t.Type(table.StatusCode); column.Kind() == table.KindInteger {
		n := 3
		for used(strconv.Itoa(n)) {
			n++
		}
		code = strconv.Itoa(n)
	} else if used(code) || column.Fit(code) != code {
		return ""
	}
	return fmt.Sprintf("codes: {failed: %s} under the table's entry gives a row that is refused for good a state of its own, if no program of yours uses that value", code)
}
