package table

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// States that a listing knows next to those of Table.States that are codes.
const (
	HeldState    = "held"    // rows with a code that the configuration does not name: the relay never sends them
	DelayedState = "delayed" // PENDING rows that are due later: delayed messages, and rows that wait after a refusal
)

// maxHeldCodes is how many codes that the configuration does not name a listing goes through.
const maxHeldCodes = 100

// codeText is a value of the status column: "" is none, "n" is NULL, else the text behind a "=".
type codeText string

const nullCode codeText = "n"

func codeOf(code string) codeText { return codeText("=" + code) }

// hasCode writes the condition that a row has a code.
func (t *Table) hasCode(s *statement, code codeText) {
	s.add(t.column(StatusCode))
	if code == nullCode {
		s.add(" IS NULL")
		return
	}
	s.add(" = ")
	t.literal(s, string(code[1:]))
}

// codeListed is the code whose rows are listed.
func (t *Table) codeListed(q Listing) codeText {
	if q.code != "" {
		return q.code
	}
	return codeOf(t.stateCode(q.State))
}

// parseCode reads a codeText that comes from outside.
func (t *Table) parseCode(text string) (codeText, bool) {
	switch {
	case text == "", codeText(text) == nullCode:
		return codeText(text), true
	case text[0] != '=', len(text) > maxReason:
		return "", false
	case t.columns[StatusCode].kindOf() == integer:
		_, err := strconv.ParseInt(text[1:], 10, 64)
		return codeText(text), err == nil
	}
	return codeText(text), true
}

// listHeld lists the rows of one code after the other, in the order of the codes' texts.
func (s *Store) listHeld(ctx context.Context, t *Table, q Listing, at Cursor) (page Listed, err error) {
	codes, err := s.heldCodes(ctx, t)
	if err != nil {
		return page, err
	}
	limit := q.Limit
	for _, code := range codes {
		if code < at.code {
			continue
		}
		if code != at.code {
			at = Cursor{code: code}
		}
		q.code, q.Limit = code, limit-len(page.Rows)
		if err := s.listCode(ctx, t, q, at, &page, limit); err != nil || page.Next != "" {
			return page, err
		}
		if len(page.Rows) == limit { // the next page begins with the next code, if there is one
			if i := slices.Index(codes, code); i+1 < len(codes) {
				page.Next = Cursor{code: codes[i+1]}.place()
			}
			return page, nil
		}
	}
	return page, nil
}

// heldCodes are the values of the status column that the configuration does not name, at most maxHeldCodes. Each costs one look into the
// index.
func (s *Store) heldCodes(ctx context.Context, t *Table) (codes []codeText, err error) {
	if t.columns[StatusCode].Nullable {
		var one int
		switch err := s.scan(ctx, t.sample("1", t.whereNull(), " LIMIT 1"), &one); {
		case err == nil:
			codes = append(codes, nullCode)
		case !errors.Is(err, sql.ErrNoRows):
			return nil, err
		}
	}
	words := t.mapping.words()
	var known []string
	for _, w := range words {
		known = append(known, w.code)
	}
	for len(codes) < maxHeldCodes {
		var code string
		err := s.scan(ctx, t.sample(t.column(StatusCode), t.whereCodeNotIn(known), " ORDER BY "+t.column(StatusCode)+" LIMIT 1"), &code)
		if errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return nil, err
		}
		codes, known = append(codes, codeOf(code)), append(known, code)
	}
	slices.Sort(codes)
	return codes, nil
}

func (t *Table) whereNull() *statement {
	s := &statement{}
	s.add(t.column(StatusCode), " IS NULL")
	return s
}

func (t *Table) whereCodeNotIn(codes []string) *statement {
	s := &statement{}
	s.add(t.column(StatusCode), " NOT IN (")
	s.list(len(codes), func(i int) { t.literal(s, codes[i]) })
	s.add(")")
	return s
}

// indexed reports whether the rows of a code are found by an index.
func (t *Table) indexed() bool {
	index := t.sweepIndex.Load()
	return index != nil && *index != "PRIMARY"
}

// inState reports whether a row is in the state that is listed.
func (t *Table) inState(q Listing, r *Row) bool {
	switch q.State {
	case AnyState:
		return true
	case HeldState:
		return r.Status == outbox.Held && r.State == ""
	case DelayedState:
		return r.Status == outbox.Pending && r.DueIn > 0
	case outbox.Failed.String():
		return r.Failed
	}
	return r.State == q.State
}
