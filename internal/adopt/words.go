package adopt

import (
	"cmp"
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
	preset := m.Words()
	if e.guessed { // its base has codes that mean nothing here
		preset = nil
	}
	var open []string
	if !numbers || e.guessed {
		open = e.recognise(preset, values)
	}
	switch {
	case len(s.Mapping.Codes) > 0:
	case s.terminal != nil && len(open) > 0:
		if err := s.askWords(ctx, column.Name, values, preset); err != nil {
			return err
		}
	default:
		e.unseen = open
	}
	if !e.guessed {
		s.setCodes(m)
		return nil
	}
	if e.unseen = nil; e.codes["pending"] == "" || e.codes["sent"] == "" {
		return faults(config.Fault{Path: "tables[0].codes", Value: column.Name, Reason: "no preset fits the table, and the meaning of this column's values is not known; it has " +
			listValues(values) + "\n  fix: --code pending=VALUE --code sent=VALUE, and sending and failed if it has them"})
	}
	for _, status := range []string{"sending", "failed"} {
		if _, known := e.codes[status]; !known {
			e.codes[status] = ""
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

// recognise gives the words of the rows their meaning, and returns the statuses whose word no row shows. preset are the words of the preset.
func (e *entry) recognise(preset []table.Word, values []statusValue) (open []string) {
	seen := map[string]bool{}
	for _, v := range values {
		status := meanings[strings.ToLower(v.code)]
		for _, word := range preset {
			if strings.EqualFold(word.Code, v.code) {
				status = word.Name
			}
		}
		if _, given := e.codes[status]; status == "" || given || seen[status] {
			continue
		}
		seen[status] = true
		if !slices.Contains(preset, table.Word{Name: status, Code: v.code}) {
			e.codes[status] = v.code
		}
	}
	for _, status := range mustShow {
		named := preset == nil || slices.ContainsFunc(preset, func(w table.Word) bool { return w.Name == status })
		if _, given := e.codes[status]; !given && !seen[status] && named {
			open = append(open, status)
		}
	}
	return open
}

// mustShow are the statuses that a relay writes or publishes by.
var mustShow = []string{"pending", "sent", "failed"}

// askWords asks for the code of each status.
func (s tableStep) askWords(ctx context.Context, column string, values []statusValue, preset []table.Word) error {
	e := &s.content.table
	s.terminal.say("  Values of the column %s: %s.", column, listValues(values))
	for _, one := range []struct{ status, text string }{
		{"pending", "Value of a row that is to be sent"},
		{"sending", "Value of a row that is being sent (- for none)"},
		{"sent", "Value of a row that was sent"},
		{"failed", "Value of a row that failed for good (- for none)"},
	} {
		base := ""
		if i := slices.IndexFunc(preset, func(w table.Word) bool { return w.Name == one.status }); i >= 0 {
			base = preset[i].Code
		}
		otherwise := cmp.Or(e.codes[one.status], base)
		if otherwise == "" && !slices.Contains(needed, one.status) {
			otherwise = none
		}
		answer, err := s.terminal.ask(ctx, one.text, otherwise)
		if err != nil {
			return err
		}
		if answer == none {
			answer = ""
		}
		if e.codes[one.status] = answer; answer == base { // as in the preset
			delete(e.codes, one.status)
		}
	}
	return nil
}

// none is the answer for a status that the table does not have.
const none = "-"

// needed are the statuses that each table has.
var needed = []string{"pending", "sent"}

func listValues(values []statusValue) string {
	if len(values) == 0 {
		return "none, because it has no row"
	}
	var texts []string
	for _, v := range values {
		rows := "rows"
		if v.rows == 1 {
			rows = "row"
		}
		texts = append(texts, fmt.Sprintf("%q (%d %s)", v.code, v.rows, rows))
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
