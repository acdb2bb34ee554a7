package query

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// scanLimit is about how many rows a question of a person may read by itself. Beyond, it asks first.
const scanLimit = 100_000

// AnyState lists the rows of every state, by the primary key.
const AnyState = "any"

// Listing says which rows a person wants to see.
type Listing struct {
	State     string // one of Table.States, or AnyState
	Type      string // exactly this business type; "" for any, as below
	Topic     string // exactly this topic
	Key       string // exactly this business key
	Reason    string // part of the reason, whatever its case
	OlderThan time.Duration
	Limit     int
	After     string // Listed.Next of the page before
	Scan      bool   // read however many rows it takes

	code table.Code // of HeldState: the one whose rows are listed
}

// narrows reports whether not every row of the state is wanted.
func (q Listing) narrows() bool {
	return q.Type != "" || q.Topic != "" || q.Reason != "" || q.OlderThan > 0
}

// fits reports whether a row is wanted.
func (t *mapped) fits(q Listing, r *Row) bool {
	return t.inState(q, r) && (q.Type == "" || r.Type == q.Type) && (q.Topic == "" || r.Topic == q.Topic) && (q.Key == "" || r.Key == q.Key) &&
		(q.OlderThan <= 0 || !r.CreatedAt.IsZero() && r.Age >= q.OlderThan) &&
		(q.Reason == "" || strings.Contains(strings.ToLower(r.Reason), strings.ToLower(q.Reason)))
}

// Listed is one page.
type Listed struct {
	Rows []Row
	Next string // where the next page begins; "" at the end
	Scan string // why it reads many rows; unless Listing.Scan allows that, nothing was read then
}

// ErrCursor says that Listing.After is no cursor of this list.
var ErrCursor = errors.New("the place to continue from is none of this list")

// How many rows one statement of a listing reads, and all of one page together.
const (
	listRows  = 1000
	listReads = 2 * scanLimit
)

// List returns a page of rows, in the order of the index that the table has; rows of any state, and those of a table without such an
// index, in the order of the primary key. It reads no more rows than listReads: a page may be short, and empty, before the end. Statements
// are plain reads of at most listRows rows, which lock nothing.
func (s lister) List(ctx context.Context, name string, q Listing) (Listed, error) {
	t, err := s.table(name)
	if err != nil {
		return Listed{}, err
	}
	page, err := s.list(ctx, t, q)
	if t.ForgetIndex(err) {
		page, err = s.list(ctx, t, q)
	}
	if err != nil && !errors.Is(err, ErrCursor) {
		err = fmt.Errorf("list rows of %s: %w", name, err)
	}
	return page, err
}

func (s lister) list(ctx context.Context, t *mapped, q Listing) (page Listed, err error) {
	at, err := t.parseCursor(q.After)
	if err != nil {
		return page, err
	}
	if q.Key != "" {
		return s.listByKey(ctx, t, q, at)
	}
	if page.Scan, err = s.scans(ctx, t, q); err != nil || page.Scan != "" && !q.Scan {
		return page, err
	}
	if (q.State == outbox.Failed.String() && !t.Fails() || q.State == table.DelayedState) && !t.Has(table.NextRetryTime) {
		return s.listWaits(ctx, t, q, at)
	}
	if q.State == table.HeldState && t.indexed() {
		return s.listHeld(ctx, t, q, at)
	}
	return page, s.listCode(ctx, t, q, at, &page, q.Limit)
}

// listCode appends the rows of one code, or of any state, to a page, which is full with limit rows. It sets Next where there may be more.
func (s lister) listCode(ctx context.Context, t *mapped, q Listing, at table.Cursor, page *Listed, limit int) error {
	most := listReads
	if q.Scan {
		most *= 10
	}
	list := t.listParts(q)
	for read := 0; !at.AtEnd && read < most && len(page.Rows) < limit; {
		n, next, err := s.listPage(ctx, t, q, list, at, page, limit)
		if err != nil {
			return err
		}
		next.Code = at.Code
		read, at = read+max(n, 1), next
	}
	if !at.AtEnd {
		page.Next = cursorText(at)
	}
	return nil
}

// listPage reads the rows of one statement into the page.
func (s lister) listPage(ctx context.Context, t *mapped, q Listing, list []table.Range, at table.Cursor, page *Listed, most int) (read int, next table.Cursor, err error) {
	if at.Range >= len(list) {
		return 0, at, ErrCursor
	}
	byCount := t.Strategy() == table.ByAttempts && !t.inAnyState(q)
	if byCount && (!at.Attempts.Known || at.Attempts.Ended) {
		var value sql.NullString
		err := t.AttemptsOf(t.codeListed(q), at.Attempts).One(ctx, s.db, &value)
		if errors.Is(err, sql.ErrNoRows) {
			return 0, table.Cursor{AtEnd: true}, nil
		} else if err != nil {
			return 0, at, err
		}
		at.Attempts = table.AttemptCount{Known: true, Value: value.String}
	}
	limit := listRows
	if !q.narrows() && !t.picks(q) {
		limit = min(limit, most-len(page.Rows))
	}
	full := false
	err = s.eachLook(ctx, t, t.listing(list[at.Range], q, at, limit), func(r *Row, behind string) {
		if full {
			return
		}
		if t.fits(q, r) {
			page.Rows = append(page.Rows, *r)
			full = len(page.Rows) == most
		}
		at = at.Behind(behind, r.ID)
		read++
	})
	if err != nil || full || read == limit {
		return read, at, err
	}
	return read, at.Next(list, byCount), nil
}

// picks reports whether the rows of a state are some of those that are read for it.
func (t *mapped) picks(q Listing) bool {
	switch q.State {
	case outbox.Failed.String():
		return !t.Fails()
	case table.DelayedState:
		return t.Strategy() != table.ByDue
	case table.HeldState:
		return !t.indexed()
	}
	return false
}

// inAnyState reports whether a listing goes through the rows of every state, by the primary key.
func (t *mapped) inAnyState(q Listing) bool {
	return q.State == AnyState || q.State == table.HeldState && !t.indexed()
}

// stateCode is the code of a state.
func (t *mapped) stateCode(state string) string {
	if state == outbox.Failed.String() && !t.Fails() || state == table.DelayedState {
		return t.Mapping().Codes[outbox.Pending]
	}
	for _, w := range t.Mapping().Words() {
		if w.Name == state {
			return w.Code
		}
	}
	return ""
}

// listParts are the parts of the index that a listing goes through.
func (t *mapped) listParts(q Listing) []table.Range {
	if t.inAnyState(q) || t.TimeBehind() == table.ID {
		return []table.Range{{Part: table.Whole}}
	}
	if (t.picks(q) || q.State == table.DelayedState) && t.TimeBehind() == table.NextRetryTime { // what was refused waits
		return []table.Range{{Part: table.Timed}}
	}
	return []table.Range{{Part: table.Untimed}, {Part: table.Timed}}
}

// listing is the query of one page.
func (t *mapped) listing(in table.Range, q Listing, at table.Cursor, limit int) *table.Statement {
	s := t.selectLook(t.TimeShown(in))
	if t.inAnyState(q) {
		s.Add(" FROM ", t.Quoted(), " FORCE INDEX (PRIMARY) WHERE TRUE")
	} else {
		t.FromIndex(s, t.codeListed(q), at.Attempts)
		if q.State == table.DelayedState && t.Strategy() == table.ByDue {
			s.Add(" AND ", t.Column(table.NextRetryTime), " > ", t.Now(table.NextRetryTime))
		}
	}
	switch in.Part {
	case table.Untimed:
		s.Add(" AND ", t.Column(t.TimeBehind()), " IS NULL")
	case table.Timed:
		s.Add(" AND ", t.Column(t.TimeBehind()), " IS NOT NULL")
	}
	t.Behind(s, in, at)
	t.InOrder(s, in, limit)
	return s
}

// scans says why a listing would read many rows, and what would help.
func (s *tables) scans(ctx context.Context, t *mapped, q Listing) (string, error) {
	indexed := q.State == AnyState || t.indexed()
	if indexed && !q.narrows() && !t.picks(q) {
		return "", nil
	}
	where := table.Text("TRUE")
	switch {
	case t.inAnyState(q):
	case q.State == table.HeldState:
		where = t.whereHeld()
	default:
		where = t.whereCode(t.stateCode(q.State))
	}
	rows, err := s.estimate(ctx, t, where)
	if !t.inAnyState(q) {
		rows *= 2 // the server estimates no range above half of its table
	}
	if err != nil || rows <= s.scanLimit {
		return "", err
	}
	if !indexed {
		return fmt.Sprintf("it would read about %d rows of %s, because no index begins with the status and continues in an order that can be followed; "+
			"an index would help: ALTER TABLE %s %s", rows, t.Name(), t.Quoted(), t.AddSweepIndex()), nil
	}
	return fmt.Sprintf("it would read about %d rows of %s to find those that fit; name a state with fewer rows, a key, or a message with `messages show`", rows, t.Name()), nil
}

// listWaits lists the rows that were refused, where neither a code nor a column says so: from what is kept of them.
func (s lister) listWaits(ctx context.Context, t *mapped, q Listing, at table.Cursor) (page Listed, err error) {
	all := s.waits.Of(t.Name())
	slices.SortFunc(all, func(a, b outbox.Identity) int { return strings.Compare(a.ID, b.ID) })
	i := 0
	if at.Begun() {
		i, _ = slices.BinarySearchFunc(all, at.LastID+"\x00", func(a outbox.Identity, id string) int { return strings.Compare(a.ID, id) })
	}
	for chunk := range slices.Chunk(all[i:], table.MaxRows) {
		rows, err := s.byIDs(ctx, t, chunk)
		if err != nil {
			return page, err
		}
		for _, r := range rows {
			if len(page.Rows) == q.Limit {
				page.Next = cursorText(behindRow(&page.Rows[q.Limit-1]))
				return page, nil
			}
			if t.fits(q, &r) {
				page.Rows = append(page.Rows, r)
			}
		}
	}
	return page, nil
}

// byIDs reads the rows of identities, in the order of these; rows that are gone, or are others by now, are left out.
func (s *tables) byIDs(ctx context.Context, t *mapped, ids []outbox.Identity) ([]Row, error) {
	query := t.selectLook("NULL")
	t.FromKeys(query, len(ids), func(i int) string { return ids[i].ID })
	found := map[outbox.Identity]Row{}
	if err := s.eachLook(ctx, t, query, func(r *Row, _ string) { found[r.Identity] = *r }); err != nil {
		return nil, err
	}
	var rows []Row
	for _, id := range ids {
		if r, ok := found[id]; ok {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// cursorJSON is a Cursor as it travels: it comes back from outside, so that each part is checked.
type cursorJSON struct {
	At       int    `json:"p,omitempty"`
	Known    bool   `json:"k,omitempty"`
	Ended    bool   `json:"e,omitempty"`
	Attempts string `json:"a,omitempty"`
	Time     string `json:"t,omitempty"`
	ID       string `json:"i,omitempty"`
	Empty    bool   `json:"z,omitempty"`
	Code     string `json:"c,omitempty"`
}

func cursorText(c table.Cursor) string {
	data, _ := json.Marshal(cursorJSON{c.Range, c.Attempts.Known, c.Attempts.Ended, c.Attempts.Value, c.LastTime, c.LastID, c.EmptyID, string(c.Code)}) // of text and numbers
	return base64.RawURLEncoding.EncodeToString(data)
}

func (t *mapped) parseCursor(text string) (c table.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	var p cursorJSON
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return c, ErrCursor
	}
	_, number := strconv.ParseInt(p.Attempts, 10, 64)
	_, isTime := table.ParseTime([]byte(p.Time), time.UTC)
	code, isCode := t.parseCode(p.Code)
	if !isCode || p.At < 0 || p.At > 1 || p.Attempts != "" && number != nil || p.Time != "" && !isTime || p.ID != "" && t.CheckID(p.ID) != nil ||
		p.Empty && (p.ID != "" || t.Type(table.ID).Kind() == table.KindInteger) {
		return c, ErrCursor
	}
	return table.Cursor{Range: p.At, Attempts: table.AttemptCount{Known: p.Known, Ended: p.Ended, Value: p.Attempts}, LastTime: p.Time, LastID: p.ID, EmptyID: p.Empty, Code: code}, nil
}
