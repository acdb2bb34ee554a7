package adversary

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// held is a status that the mapping does not name: the relay does not change such a row.
const held = 9

// will is the row's owners' intention after an operator has changed it.
type will int

const (
	same     will = iota // as before
	wanted               // it must be published
	optional             // it need not be published: discarded, deleted, or given a final status by hand
)

// account is the oracle's data in addition to the ledgers.
type account struct {
	touched    map[string]will // by message id. Their order is open, and copies of them are allowed.
	poison     map[string]bool
	unwritable map[string]bool
	refused    bool // the broker has refused rows in this run
	periods    []period
	open       bool // the last period has not ended
	copies     int
}

// period is a time in which copies may come: a fault, and the time after it until each table has a relay again. A row that was
// SENT when it began, or was committed after it ended, has no copy by it.
type period struct {
	sent map[string]bool // SENT when it began
	end  map[string]bool // committed when it ended
}

func newAccount() account {
	return account{touched: map[string]will{}, poison: map[string]bool{}, unwritable: map[string]bool{}}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// touch records a planned change of an operator, whether or not it succeeds.
func (w *world) touch(rows []chosen, to will) {
	for _, c := range rows {
		if old := w.touched[c.messageID]; to == same {
			w.touched[c.messageID] = old
		} else {
			w.touched[c.messageID] = to
		}
	}
}

// touchUnwritable records that rows that the table refuses are changed, too.
func (w *world) touchUnwritable(table int) {
	for id := range w.loads[table].Ledger.Rows() {
		if w.unwritable[id] {
			w.touched[id] = optional
		}
	}
}

// disturb begins a period, if none is open.
func (w *world) disturb() {
	if w.open {
		return
	}
	p := period{sent: map[string]bool{}}
	for _, t := range w.tables {
		maps.Copy(p.sent, t.SentIDs(w.t))
	}
	w.periods, w.open = append(w.periods, p), true
}

// observe ends the period when nothing is broken any more.
func (w *world) observe() {
	if !w.open || len(w.active) > 0 || w.serves(w.tables[0]) < 0 || w.serves(w.tables[1]) < 0 {
		return
	}
	end := map[string]bool{}
	for _, load := range w.loads {
		for id := range load.Ledger.Rows() {
			end[id] = true
		}
	}
	w.periods[len(w.periods)-1].end, w.open = end, false
}

// finish ends all faults, has operators free waiting rows, and checks the promises.
func (w *world) finish(stop func()) {
	w.t.Helper()
	w.heal(true)
	w.say("the end: nothing is broken any more, both relays have all tables")
	for i := range w.relays {
		w.watch()
		w.disturb()
		w.stop(i)
		w.configure(i, w.tables)
		w.relays[i].Launch(w.t)
	}
	w.serving("at the end")
	stop()
	w.settled()
	w.observe()
	w.check()
	w.tail()
	for i := range w.relays {
		w.stop(i)
	}
}

const (
	unsettled = "status IN (0, 1) AND biz_type NOT LIKE 'unwritable%'"
	// behindRefused are rows behind one of their key whose change the table refuses.
	behindRefused = "EXISTS (SELECT 1 FROM t_local_message AS u WHERE u.biz_type LIKE 'unwritable%' AND u.status IN (0, 1) " +
		"AND u.sharding_key = t_local_message.sharding_key AND u.id < t_local_message.id)"
)

// settled waits until no row is in flight. An operator frees rows that were refused or postponed, each in another way; rows
// behind them must come by themselves.
func (w *world) settled() {
	w.t.Helper()
	r := rand.New(rand.NewPCG(w.seed, 4))
	defer func() {
		for i, t := range w.tables {
			if n := t.Count(w.t, unsettled); n > 0 {
				rows, err := server.Show(context.Background(), w.pool(i), "SELECT t_local_message.*, NOW(3), "+behindRefused+" AS waiting FROM t_local_message WHERE "+unsettled+" ORDER BY id LIMIT 12")
				w.t.Logf("%d rows are not settled: %v %v", n, rows, err)
			}
		}
	}()
	testkit.WaitFor(w.t, patience, "every row to be settled", func() bool {
		w.watch()
		left := 0
		for i, t := range w.tables {
			w.free(i, r)
			left += t.Count(w.t, unsettled+" AND NOT "+behindRefused)
		}
		return left == 0 && w.onlyBlocked()
	})
}

// published counts the messages of the topics.
func (w *world) published() map[string]int {
	count := map[string]int{}
	for _, r := range relay.ReadAll(w.t, w.broker, w.topics...) {
		count[r.MessageID]++
	}
	return count
}

// onlyBlocked reports whether each unsettled row is one of blocked.
func (w *world) onlyBlocked() bool {
	published := w.published()
	for i := range w.tables {
		blocked := w.blocked(i, published)
		for _, c := range w.choose(i, unsettled, 10_000) {
			if !blocked[c.messageID] {
				return false
			}
		}
	}
	return true
}

// blocked are the rows behind one of their key that the relay leaves out, because the table refuses its claim: an operator has to repair that
// first. That is one that was not published, or, as the relay's log then says, one of which a relay that took over does not know that it was:
// the lease could not be written when the other one stopped.
func (w *world) blocked(table int, published map[string]int) map[string]bool {
	w.t.Helper()
	pairs, err := relay.Select(w.t.Context(), w.pool(table), func(p *[2]string) []any { return []any{&p[0], &p[1]} },
		"SELECT CONCAT(t.biz_type, ':', t.biz_key), CONCAT(u.biz_type, ':', u.biz_key) FROM t_local_message AS u JOIN t_local_message AS t "+
			"ON t.sharding_key = u.sharding_key AND t.id > u.id WHERE u.biz_type LIKE 'unwritable%' AND u.status IN (0, 1) AND t.status IN (0, 1)")
	w.must(err)
	rows, leftOut := map[string]bool{}, w.leftOut(table) > 0
	for _, p := range pairs {
		if published[p[1]] == 0 || leftOut {
			rows[p[0]] = true
		}
	}
	return rows
}

// free is how operators free rows that would wait for long.
func (w *world) free(table int, r *rand.Rand) {
	claimed := w.choose(table, "status = 1 AND last_exec_time > NOW(3) + INTERVAL 10 SECOND", 1000)
	if len(claimed) > 0 {
		w.touch(claimed, same)
		w.update(table, claimed, "UPDATE t_local_message SET last_exec_time = NULL")
	}
	for _, one := range w.choose(table, "status = 0 AND next_retry_time > NOW(3) + INTERVAL 15 SECOND", 50) {
		row := []chosen{one}
		switch r.IntN(6) {
		case 0:
			w.touch(row, optional)
			w.update(table, row, "DELETE FROM t_local_message")
		case 1:
			w.touch(row, optional)
			w.update(table, row, "UPDATE t_local_message SET status = ?", 2+r.IntN(2))
		case 2:
			w.touch(row, optional)
			w.update(table, row, "UPDATE t_local_message SET status = ?", held)
		case 3:
			w.touch(row, same)
			w.update(table, row, "UPDATE t_local_message SET next_retry_time = NOW(3)")
		case 4:
			discard(w, Step{Table: table}, r)
		default:
			w.retry(table, row, false)
		}
	}
}

// check is P1 to P5 and P8.
func (w *world) check() {
	w.t.Helper()
	records := relay.ReadAll(w.t, w.broker, w.topics...)
	for i := range w.loads {
		w.checkTable(i, slices.DeleteFunc(slices.Clone(records), func(r relay.Record) bool { return !slices.Contains(w.loads[i].Topics, r.Topic) }))
	}
}

func (w *world) checkTable(table int, records []relay.Record) {
	w.t.Helper()
	rows, published := w.loads[table].Ledger.Rows(), map[string]int{}
	for _, r := range records {
		published[r.MessageID]++
	}
	states, blocked := w.states(table), w.blocked(table, published)
	open := map[string]bool{} // whose order is not compared
	var faults, refused []string
	for _, id := range keys(rows) {
		switch fault := w.row(id, states, published[id]); {
		case fault == "", blocked[id] && published[id] == 0 && !w.unwritable[id]:
		case published[id] == 0 && w.unwritable[id]:
			refused = append(refused, fault)
		default:
			faults = append(faults, fault)
		}
		if _, touched := w.touched[id]; touched || published[id] == 0 {
			open[id] = true
		}
	}
	// Only a sweep may publish these, and the table refuses its claim: an operator has to act, and a relay says how many there are.
	if len(refused) > w.leftOut(table) {
		faults = append(faults, refused...)
	}
	if len(faults) > 0 {
		w.t.Errorf("%s: %d rows: %s", w.tables[table].FullName(), len(faults), strings.Join(faults[:min(20, len(faults))], "; "))
	}
	account := w.loads[table].Ledger.Without(open).Compare(records)
	account.Lost = nil // see row
	account.Check(w.t)
	w.copies += account.Duplicates()
}

type state struct {
	id              string
	status, retries int
}

func (w *world) states(table int) map[string]state {
	w.t.Helper()
	rows, err := relay.Select(w.t.Context(), w.pool(table), func(s *state) []any { return []any{&s.id, &s.status, &s.retries} },
		"SELECT CONCAT(biz_type, ':', biz_key), status, retry_count FROM t_local_message")
	w.must(err)
	all := map[string]state{}
	for _, s := range rows {
		all[s.id] = s
	}
	return all
}

// row returns what is wrong with one row, "" for nothing.
func (w *world) row(id string, states map[string]state, published int) string {
	s, there := states[id]
	to, touched := w.touched[id]
	free := touched && to == optional
	switch {
	case !there && !free:
		return id + " is gone from the table, and no operator has deleted it"
	case w.poison[id]:
		if there && s.status != 3 && !touched {
			return fmt.Sprintf("%s, which no broker takes, has the status %d", id, s.status)
		}
		return ""
	case published == 0 && !free:
		return fmt.Sprintf("%s was not published: status %d, retry_count %d", id, s.status, s.retries)
	case there && s.status == 3 && !free:
		return fmt.Sprintf("%s is FAILED after %d attempts", id, s.retries)
	case there && s.status != 2 && !touched && !w.unwritable[id]:
		return fmt.Sprintf("%s has the status %d", id, s.status)
	case s.retries > 0 && !w.refused && !touched:
		return fmt.Sprintf("%s lost %d attempts, and the broker has refused nothing", id, s.retries)
	case published > 1 && !touched && !w.explained(id):
		return fmt.Sprintf("%s was published %d times, and no fault explains it", id, published)
	}
	return ""
}

// leftOut is the largest number of rows that a relay's log says of a table that it leaves out, because the table refuses their change.
func (w *world) leftOut(table int) (most int) {
	name := strconv.Quote(w.tables[table].FullName())
	for _, r := range w.relays {
		for line := range strings.Lines(r.Log(w.t)) {
			if !strings.Contains(line, "rows are left out") || !strings.Contains(line, name) {
				continue
			}
			if _, rest, found := strings.Cut(line, `"rows": `); found {
				number, _, _ := strings.Cut(rest, ",")
				n, err := strconv.Atoi(number)
				w.must(err)
				most = max(most, n)
			}
		}
	}
	return most
}

// explained reports whether a period allows a copy of a row.
func (w *world) explained(id string) bool {
	return slices.ContainsFunc(w.periods, func(p period) bool { return !p.sent[id] && (p.end == nil || p.end[id]) })
}

// tail writes rows when nothing is broken, and expects each of them once: two relays that both publish would show here.
func (w *world) tail() {
	w.t.Helper()
	written := map[string]bool{}
	for i, load := range w.loads {
		rows := load.Writer(writerName(i, "tail", 0)).Rows(60)
		for _, row := range rows {
			w.must(w.tables[i].Insert(w.t.Context(), w.pool(i), row))
			written[row.MessageID] = true
		}
		load.Ledger.Committed(rows...)
	}
	testkit.WaitFor(w.t, patience, "the last rows to be SENT", func() bool {
		const open = unsettled + " AND NOT " + behindRefused
		return w.tables[0].Count(w.t, open)+w.tables[1].Count(w.t, open) == 0
	})
	count := map[string]int{}
	for _, r := range relay.ReadAll(w.t, w.broker, w.topics...) {
		if written[r.MessageID] {
			count[r.MessageID]++
		}
	}
	for _, id := range keys(written) {
		if count[id] != 1 {
			w.t.Errorf("%s, written when nothing was broken, was published %d times", id, count[id])
		}
	}
}
