package adopt

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// meanings are words of status columns, in lower case. A word that may mean two of them is not here.
var meanings = map[string]string{}

func init() {
	for status, words := range map[string]string{
		"pending":   "pending new init initial to_send tosend unsent waiting 待发送 未发送 待投递 待处理",
		"sending":   "sending publishing 发送中 投递中",
		"sent":      "sent published success succeeded 已发送 发送成功 已投递 投递成功",
		"failed":    "failed fail failure error 失败 发送失败 投递失败",
		"consumed":  "consumed 已消费",
		"suspended": "suspended 已挂起 挂起",
	} {
		for word := range strings.FieldsSeq(words) {
			meanings[word] = status
		}
	}
}

// sampled is how many rows are looked at for the values of the status.
const sampled = 10_000

// statusValue is a value of the status column.
type statusValue struct {
	code string
	rows int // of the sample
}

// words maps the values of the status column: as the answers say, as the rows show, or, on a terminal, as a person says.
func (s tableStep) words(ctx context.Context, db *sql.DB, m *table.Mapping, of table.Mapping) error {
	e := &s.content.table
	e.codes = maps.Clone(s.Mapping.Codes)
	if e.codes == nil {
		e.codes = map[string]string{}
	}
	probe := *m
	probe.Schema, probe.Name = of.Schema, of.Name
	probe.Codes, probe.States = maps.Clone(m.Codes), maps.Clone(m.States)
	bound, _, err := table.Load(ctx, db, probe)
	if err != nil {
		return tableRead(s.Mapping.Table, err)
	}
	if bound == nil || bound.LogOnly() { // what is missing is reported later
		s.setCodes(m)
		return nil
	}
	column := bound.Type(table.StatusCode)
	numbers := column.Kind() == table.KindInteger
	values, err := statusValues(ctx, db, bound)
	if err != nil {
		return tableRead(s.Mapping.Table, err)
	}
	var open []string
	if !numbers {
		open = e.recognise(m, values)
	}
	switch given := len(s.Mapping.Codes) > 0; {
	case given:
	case s.terminal != nil && (e.guessed && numbers || len(open) > 0):
		if err := s.askWords(ctx, column.Name, values, *m); err != nil {
			return err
		}
	case e.guessed && numbers:
		return faults(config.Fault{Path: "tables[0].codes", Value: column.Name, Source: "--code", Reason: "no preset fits the table, so the meaning of its numbers is not known: it has " +
			listValues(values) + "\n  fix: --code pending=NUMBER --code sent=NUMBER, and sending and failed if it has them"})
	default:
		e.unseen = open
	}
	if e.guessed { // the base's codes mean nothing here
		for _, status := range []string{"sending", "failed"} {
			if _, known := e.codes[status]; !known {
				e.codes[status] = ""
			}
		}
	}
	s.setCodes(m)
	return nil
}

func (s tableStep) setCodes(m *table.Mapping) {
	for _, status := range slices.Sorted(maps.Keys(s.content.table.codes)) {
		m.SetCode(status, s.content.table.codes[status])
	}
}

// recognise gives the words that the rows have their meaning, and returns the statuses whose word no row shows.
func (e *entry) recognise(m *table.Mapping, values []statusValue) (open []string) {
	seen := map[string]bool{}
	for _, v := range values {
		status := meanings[strings.ToLower(v.code)]
		for _, word := range m.Words() {
			if strings.EqualFold(word.Code, v.code) {
				status = word.Name
			}
		}
		if _, given := e.codes[status]; status == "" || given || seen[status] {
			continue
		}
		seen[status] = true
		if !slices.ContainsFunc(m.Words(), func(w table.Word) bool { return w.Name == status && w.Code == v.code }) {
			e.codes[status] = v.code
		}
	}
	for _, word := range m.Words() {
		if _, given := e.codes[word.Name]; !given && !seen[word.Name] && slices.Contains(mustShow, word.Name) {
			open = append(open, word.Name)
		}
	}
	return open
}

// mustShow are the statuses that a relay writes or publishes by.
var mustShow = []string{"pending", "sent", "failed"}

// askWords asks for the code of each status.
func (s tableStep) askWords(ctx context.Context, column string, values []statusValue, m table.Mapping) error {
	e := &s.content.table
	s.terminal.say("  Values of the column %s: %s.", column, listValues(values))
	for _, one := range []struct{ status, text string }{
		{"pending", "Value of a row that is to be sent"},
		{"sending", "Value of a row that is being sent (- for none)"},
		{"sent", "Value of a row that was sent"},
		{"failed", "Value of a row that failed for good (- for none)"},
	} {
		otherwise := e.codes[one.status]
		for _, word := range m.Words() {
			if word.Name == one.status && otherwise == "" && !e.guessed {
				otherwise = word.Code
			}
		}
		if otherwise == "" && !slices.Contains(needed, one.status) {
			otherwise = "-"
		}
		answer, err := s.terminal.ask(ctx, one.text, otherwise)
		if err != nil {
			return err
		}
		if answer == "-" {
			answer = ""
		}
		e.codes[one.status] = answer
	}
	for _, word := range m.Words() { // what is as in the preset needs no line
		if !e.guessed && e.codes[word.Name] == word.Code {
			delete(e.codes, word.Name)
		}
	}
	if !e.guessed && e.codes["sending"] == "" && !slices.ContainsFunc(m.Words(), func(w table.Word) bool { return w.Name == "sending" }) {
		delete(e.codes, "sending")
	}
	return nil
}

var needed = []string{"pending", "sent"}

func listValues(values []statusValue) string {
	if len(values) == 0 {
		return "none, because it has no row"
	}
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("%q (%d rows)", v.code, v.rows))
	}
	return strings.Join(texts, ", ")
}

// statusValues are the most frequent values in a sample of the rows.
func statusValues(ctx context.Context, db *sql.DB, t *table.Table) (values []statusValue, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT COALESCE(code, 'NULL'), COUNT(*) FROM (SELECT %s AS code FROM %s ORDER BY %s DESC LIMIT %d) AS sample "+
		"GROUP BY code ORDER BY COUNT(*) DESC, code LIMIT 10", t.Column(table.StatusCode), t.Quoted(), t.Column(table.ID), sampled))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v statusValue
		if err := rows.Scan(&v.code, &v.rows); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, rows.Err()
}
