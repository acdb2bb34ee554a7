package query

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// maxHeldCodes is how many codes that the configuration does not name a listing goes through.
const maxHeldCodes = 100

// codeListed is the code whose rows are listed.
func (t *mapped) codeListed(q Listing) table.Code {
	if q.code != "" {
		return q.code
	}
	return table.CodeOf(t.stateCode(q.State))
}

// parseCode reads a codeText that comes from outside.
func (t *mapped) parseCode(text string) (table.Code, bool) {
	switch {
	case text == "", table.Code(text) == table.NullCode:
		return table.Code(text), true
	case text[0] != '=', len(text) > maxReason:
		return "", false
	case t.Type(table.StatusCode).Kind() == table.KindInteger:
		_, err := strconv.ParseInt(text[1:], 10, 64)
		return table.Code(text), err == nil
	}
	return table.Code(text), true
}

// listHeld lists the rows of one code after the other, in the order of the codes' texts.
func (s lister) listHeld(ctx context.Context, t *mapped, q Listing, at table.Cursor) (page Listed, err error) {
	codes, err := s.heldCodes(ctx, t)
	if err != nil {
		return page, err
	}
	limit := q.Limit
	for _, code := range codes {
		if code < at.Code {
			continue
		}
		if code != at.Code {
			at = table.Cursor{Code: code}
		}
		q.code, q.Limit = code, limit-len(page.Rows)
		if err := s.listCode(ctx, t, q, at, &page, limit); err != nil || page.Next != "" {
			return page, err
		}
		if len(page.Rows) == limit { // the next page begins with the next code, if there is one
			if i := slices.Index(codes, code); i+1 < len(codes) {
				page.Next = cursorText(table.Cursor{Code: codes[i+1]})
			}
			return page, nil
		}
	}
	return page, nil
}

// heldCodes are the values of the status column that the configuration does not name, at most maxHeldCodes. Each costs one look into the
// index.
func (s lister) heldCodes(ctx context.Context, t *mapped) (codes []table.Code, err error) {
	if t.Type(table.StatusCode).Nullable {
		var one int
		switch err := t.sample("1", t.whereNull(), " LIMIT 1").One(ctx, s.db, &one); {
		case err == nil:
			codes = append(codes, table.NullCode)
		case !errors.Is(err, sql.ErrNoRows):
			return nil, err
		}
	}
	words := t.Mapping().Words()
	var known []string
	for _, w := range words {
		known = append(known, w.Code)
	}
	for len(codes) < maxHeldCodes {
		var code string
		err := t.sample(t.Column(table.StatusCode), t.whereCodeNotIn(known), " ORDER BY "+t.Column(table.StatusCode)+" LIMIT 1").One(ctx, s.db, &code)
		if errors.Is(err, sql.ErrNoRows) {
			break
		} else if err != nil {
			return nil, err
		}
		codes, known = append(codes, table.CodeOf(code)), append(known, code)
	}
	slices.Sort(codes)
	return codes, nil
}

func (t *mapped) whereNull() *table.Statement {
	s := table.Text(t.Column(table.StatusCode), " IS NULL")
	return s
}

func (t *mapped) whereCodeNotIn(codes []string) *table.Statement {
	s := table.Text(t.Column(table.StatusCode), " NOT IN (")
	s.List(len(codes), func(i int) { t.Literal(s, codes[i]) })
	s.Add(")")
	return s
}

// indexed reports whether the rows of a code are found by an index.
func (t *mapped) indexed() bool {
	index := t.SweepIndex()
	return index != "" && index != "PRIMARY"
}

// inState reports whether a row is in the state that is listed.
func (t *mapped) inState(q Listing, r *Row) bool {
	switch q.State {
	case AnyState:
		return true
	case table.HeldState:
		return r.Status == outbox.Held && r.State == ""
	case table.DelayedState:
		return r.Status == outbox.Pending && r.DueIn > 0
	case outbox.Failed.String():
		return r.Failed
	}
	return r.State == q.State
}
