package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// store is what the relay asks of the table: the model (rows) and outbox/table are both one.
type store interface {
	Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error)
	States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)
	Untouched(ctx context.Context, ids []outbox.Identity) (bool, error)
	Claim(ctx context.Context, candidates []outbox.Candidate) (token string, err error)
	ReadBack(ctx context.Context, token string, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error)
	Due(ctx context.Context, name string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error)
	Upcoming(ctx context.Context, name string, from, to time.Duration, limit int) ([]outbox.Candidate, error)
	Final(ctx context.Context, name string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error)
	RetryFailed(ctx context.Context, ids []outbox.Identity) (int64, error)
	ReadSent(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, error)
	MarkDone(ctx context.Context, ids []outbox.Identity) (int64, error)
	Expired(ctx context.Context, name, after string, of []table.Expiry) (table.ExpiredPage, error)
	Expire(ctx context.Context, name string, e table.Expiry, ids []string) (table.Left, error)
}

// move is one operation: what it does to the model and to a server, and what the model answered. Its arguments are values, so that a server
// gets the same.
type move struct {
	at   time.Time // by the clock of the database
	what string
	byUs func(ctx context.Context, s store) (answer string, err error) // an operation of the relay
	hand func(w *world)                                                // or what people and applications do, on the model
	sql  []string                                                      // and on a server
	want string
	rows string // the table behind it
}

const (
	moves     = 60
	differing = 10 * time.Millisecond // the model takes some milliseconds of its clock for an operation, a server none
)

// shownRow is how both tables are written down. A due time counts for PENDING rows, a token for SENDING ones.
func shownRow(id, message string, status outbox.Status, retries int, due time.Time, token string, began time.Time) string {
	text := fmt.Sprintf("%s %s %s %d", id, message, status, retries)
	if status == outbox.Pending && !due.IsZero() {
		text += " due in " + rounded(due.Sub(began))
	}
	if status == outbox.Sending {
		text += " token " + cmp.Or(token, "none")
	}
	return text
}

// rounded drops what the operations take in the model: all times of the test lie 250 ms apart.
func rounded(d time.Duration) string {
	return (d + differing).Truncate(50 * time.Millisecond).String()
}

func shownCandidate(c outbox.Candidate) string {
	text := fmt.Sprintf("%s %s %s %d %s key %q waiting %v", c.ID, c.MessageID, c.Status, c.RetryCount, c.Topic, c.Key, c.Waiting)
	if c.Status == outbox.Pending && c.Waiting {
		text += " due in " + rounded(time.Duration(c.DueInMilli)*time.Millisecond+differing)
	}
	if c.Status == outbox.Sending {
		text += " token " + cmp.Or(c.ClaimToken, "none")
	}
	return text
}

func shownAll[T any](list []T, show func(T) string) string {
	var lines []string
	for _, one := range list {
		lines = append(lines, show(one))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// script draws the moves of a seed and runs them on the model.
type script struct {
	*dice
	w     *world
	i     *incarnation
	began time.Time
	next  int
	seen  []outbox.Candidate // what answers have shown, some of it stale
	token []string
	moves []move
}

func newScript(seed uint64) *script {
	w := newWorld(seed)
	w.plan.errors, w.plan.ownLog, w.plan.ordered, w.plan.database = 0, false, true, nil
	w.plan.hasty, w.plan.again.undated, w.plan.twoTables, w.plan.locked = false, false, false, nil // no owner acts but by a move of the script
	w.plan.settings.Pipeline.Ordered = []string{tableName}
	w.plan.grace = pick(newDice(seed, "differential grace"), 0, 3250*time.Millisecond)
	i := w.incarnate(w.disks[0], life{}, nil)
	i.peer = w.id
	return &script{dice: newDice(seed, "differential"), w: w, i: i, began: time.Now(), token: []string{"2000-01-01 00:00:00.000"}}
}

// run is inside the bubble: the clock is the model's own.
func (s *script) run(t *testing.T) {
	for n := range moves {
		time.Sleep(time.Until(s.began.Add(time.Duration(n+1) * time.Second)))
		m := s.draw()
		m.at = time.Now()
		if m.hand != nil {
			s.w.mu.Lock()
			m.hand(s.w)
			s.w.mu.Unlock()
		} else {
			answer, err := m.byUs(t.Context(), rows{s.i})
			testkit.Must(t, err)
			m.want = answer
		}
		m.rows = s.table(m.at)
		s.moves = append(s.moves, m)
	}
}

// table is the model's.
func (s *script) table(at time.Time) string {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	var all []*row
	for _, r := range s.w.table {
		all = append(all, r)
	}
	return shownAll(all, func(r *row) string { return shownRow(r.ID, r.MessageID, r.status, r.retries, r.due, r.token, at) })
}

// some are identities: rows of the table, rows that are gone, and the same ids under another message id.
func (s *script) some(most int) (ids []outbox.Identity) {
	seen := map[string]bool{}
	for range s.in(1, most) {
		if len(s.w.lives) == 0 {
			break
		}
		if id := s.w.lives[s.n(len(s.w.lives))].Identity; !seen[id.ID] {
			seen[id.ID], ids = true, append(ids, id)
		}
	}
	return ids
}

func (s *script) draw() move {
	if len(s.w.lives) < 4 {
		return s.insert()
	}
	switch s.n(21) {
	case 0, 1, 2:
		return s.insert()
	case 3:
		return s.byHand()
	case 4:
		return s.remove()
	case 5, 6:
		return s.due()
	case 7:
		return s.upcoming()
	case 8:
		ids := s.some(8)
		return move{what: fmt.Sprint("states ", ids), byUs: func(ctx context.Context, st store) (string, error) {
			found, err := st.States(ctx, ids)
			s.see(st, found)
			return shownAll(found, shownCandidate), err
		}}
	case 9:
		ids := s.some(3)
		return move{what: fmt.Sprint("untouched ", ids), byUs: func(ctx context.Context, st store) (string, error) {
			is, err := st.Untouched(ctx, ids)
			return strconv.FormatBool(is), err
		}}
	case 10, 11:
		return s.claim()
	case 12:
		return s.readBack()
	case 13, 14, 15, 16:
		return s.apply()
	}
	return s.final()
}

// see remembers what the model has answered.
func (s *script) see(st store, found []outbox.Candidate) {
	if _, model := st.(rows); model {
		s.seen = append(s.seen, found...)
	}
}

// insert writes a row in one of the states that people leave, sometimes under the id of one that is gone.
func (s *script) insert() move {
	s.next++
	number := s.next
	if s.chance(0.2) {
		for _, r := range s.w.lives {
			if r.gone && s.w.table[r.in()] == nil {
				number = r.number
			}
		}
	}
	message := fmt.Sprintf("b:m%d", s.next)
	if s.chance(0.1) {
		message = fmt.Sprintf("unwritable:m%d", s.next)
	}
	status := pick(s.dice, outbox.Pending, outbox.Pending, outbox.Pending, outbox.Pending, outbox.Sending, outbox.Held, outbox.Failed)
	due := pick(s.dice, time.Duration(0), 0, 250*time.Millisecond, 2500*time.Millisecond, -1500*time.Millisecond, time.Hour+250*time.Millisecond)
	key := pick(s.dice, "k1", "k2", "")
	kind, own, _ := strings.Cut(message, ":")
	at := "NULL"
	if due != 0 {
		at = fmt.Sprintf("NOW(3) + INTERVAL %d MICROSECOND", due.Microseconds())
	}
	return move{
		what: fmt.Sprintf("insert %d %s %s due %v", number, message, status, due),
		hand: func(w *world) {
			r := &row{
				Identity: outbox.Identity{Table: tableName, ID: strconv.Itoa(number), MessageID: message}, number: number, entry: -1, topic: topicA,
				key: cmp.Or(key, own), maxRetry: -1, created: time.Now(), status: status, unwritable: kind == "unwritable",
			}
			r.consumed = status == outbox.Held
			if due != 0 {
				r.due = time.Now().Add(due)
			}
			w.enter([]*row{r}, -1, 0)
			r.grace = w.plan.grace // behind it: the application does not mark its row by itself
		},
		sql: []string{fmt.Sprintf("INSERT INTO outbox SET id = %d, biz_type = '%s', biz_key = '%s', topic = '%s', message_body = 'x', sharding_key = NULLIF('%s', ''), status = %d, next_retry_time = %s",
			number, kind, own, topicA, key, code(status), at)},
	}
}

// code is the column's. The model has one state of the consumers.
func code(status outbox.Status) int {
	switch status {
	case outbox.Pending:
		return 0
	case outbox.Sending:
		return 1
	case outbox.Sent:
		return 2
	case outbox.Failed:
		return 3
	}
	return 9
}

// byHand sets a status or a claim time.
func (s *script) byHand() move {
	r := s.w.lives[s.n(len(s.w.lives))]
	if r.unwritable {
		return s.insert()
	}
	status := pick(s.dice, outbox.Pending, outbox.Sending, outbox.Sent, outbox.Failed, outbox.Held)
	claimed, token, ahead := "NULL", "", pick(s.dice, 0, 0, -time.Hour, time.Hour)
	if ahead != 0 || status == outbox.Sent || status == outbox.Failed {
		token = time.Now().Add(ahead).UTC().Format(tokenForm)
		claimed = "'" + token + "'"
	}
	return move{
		what: fmt.Sprintf("set %s to %s, claimed at %s", r.MessageID, status, claimed),
		hand: func(*world) {
			if !r.gone {
				r.status, r.token, r.final, r.consumed = status, token, time.Now().Add(ahead), status == outbox.Held
			}
		},
		sql: []string{fmt.Sprintf("UPDATE outbox SET status = %d, last_exec_time = %s, updated_at = NOW(3) WHERE CONCAT(biz_type, ':', biz_key) = '%s'", code(status), claimed, r.MessageID)},
	}
}

func (s *script) remove() move {
	r := s.w.lives[s.n(len(s.w.lives))]
	return move{
		what: "delete " + r.MessageID,
		hand: func(w *world) {
			if !r.gone {
				w.drop(r, "delete")
			}
		},
		sql: []string{fmt.Sprintf("DELETE FROM outbox WHERE CONCAT(biz_type, ':', biz_key) = '%s'", r.MessageID)},
	}
}

func (s *script) due() move {
	q := table.DueQuery{
		Threshold: pick(s.dice, 0, 2500*time.Millisecond, 6500*time.Millisecond), Horizon: pick(s.dice, 625*time.Millisecond, 4625*time.Millisecond, 24*time.Hour),
		ExpiredClaims: pick(s.dice, 0, 4500*time.Millisecond), Limit: s.in(1, 5),
	}
	return move{what: fmt.Sprintf("due %+v", q), byUs: func(ctx context.Context, st store) (string, error) {
		var all []outbox.Candidate
		for at := (table.Cursor{}); !at.Done(); {
			page, next, err := st.Due(ctx, tableName, at, q)
			if err != nil {
				return "", err
			}
			all, at = append(all, page...), next
		}
		s.see(st, all)
		return shownAll(all, shownCandidate), nil
	}}
}

func (s *script) upcoming() move {
	from, to, limit := pick(s.dice, -1625*time.Millisecond, -125*time.Millisecond, 625*time.Millisecond), pick(s.dice, 3625*time.Millisecond, 2*time.Hour), s.in(1, 6)
	return move{what: fmt.Sprint("upcoming ", from, " ", to, " ", limit), byUs: func(ctx context.Context, st store) (string, error) {
		found, err := st.Upcoming(ctx, tableName, from, to, limit)
		s.see(st, found)
		return shownAll(found, shownCandidate), err
	}}
}

func (s *script) claim() move {
	if len(s.seen) == 0 {
		return s.due()
	}
	known := map[string]bool{}
	var list []outbox.Candidate
	for range s.in(1, 6) {
		if c := s.seen[max(0, len(s.seen)-1-s.n(12))]; !known[c.ID] && (c.Status == outbox.Pending || c.Status == outbox.Sending) {
			known[c.ID], list = true, append(list, c)
		}
	}
	if len(list) == 0 {
		return s.due()
	}
	return move{what: fmt.Sprint("claim ", shownAll(list, shownCandidate)), byUs: func(ctx context.Context, st store) (string, error) {
		token, err := st.Claim(ctx, list)
		if _, model := st.(rows); model {
			s.token = append(s.token, token)
		}
		return token, err
	}}
}

func (s *script) readBack() move {
	token, ids := s.token[max(0, len(s.token)-1-s.n(3))], s.some(8)
	return move{what: fmt.Sprint("read back ", token, ids), byUs: func(ctx context.Context, st store) (string, error) {
		found, faulty, err := st.ReadBack(ctx, token, ids)
		return shownAll(found, func(m *outbox.Message) string {
			return fmt.Sprint(m.ID, m.MessageID, m.Topic, m.RetryCount, m.Status, m.Claim)
		}) + fmt.Sprint(len(faulty)), err
	}}
}

func (s *script) apply() move {
	var batch []outbox.Completion
	action := pick(s.dice, outbox.ActionMarkSent, outbox.ActionMarkSent, outbox.ActionRetry, outbox.ActionFail, outbox.ActionRelease)
	for _, id := range s.some(6) {
		batch = append(batch, outbox.Completion{
			Identity: id, Action: action, RetryCount: max(0, s.w.byID[id].retries-s.n(2)*s.n(2)), Delay: pick(s.dice, 250*time.Millisecond, 3500*time.Millisecond, 10*time.Minute+500*time.Millisecond),
			Reason: "no", Claim: s.token[max(0, len(s.token)-1-s.n(2))],
		})
	}
	return move{what: fmt.Sprintf("apply %+v", batch), byUs: func(ctx context.Context, st store) (string, error) {
		refused, err := st.Apply(ctx, batch)
		return shownAll(refused, func(e outbox.WriteError) string { return fmt.Sprint(e.ID, e.MessageID, e.Retryable) }), err
	}}
}

const scripts = 20 // seeds

// The model of the table is as strict as a server: random sequences of the operations that the relay has, next to those of applications and people,
// leave the same rows and give the same answers on the model and, with outbox/table, on MySQL and MariaDB. What it does not compare: locks, the order
// of a page, and statements that fail.
func TestTheModelIsTheTable(t *testing.T) {
	for seed := range scripts {
		var s *script
		synctest.Test(t, func(t *testing.T) {
			s = newScript(uint64(seed + 1))
			s.run(t)
		})
		for _, flavor := range testkit.Flavors() {
			t.Run(fmt.Sprintf("seed_%d_%s", seed+1, flavor), func(t *testing.T) { newReal(t, flavor, s.w.plan.grace).play(t, s.moves) })
		}
	}
}
