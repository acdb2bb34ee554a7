package sim

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// This file is those who consume the messages of a table whose rows go out again. Some finish a row at its first copy, some at a later one
// and some never. They write that to the table, or their service has it and is asked.

// consumption is what the consumers did with a row.
type consumption struct {
	arrivals  int
	finishing bool
	done      bool // their service has it
	consumed  bool // the table shows it
	told      bool // a process was told that it is done
}

// arrived is a copy that the consumers get. Callers hold mu.
func (w *world) arrived(r *row) {
	rule := w.plan.again.sent
	if rule.After == 0 || r.logOnly || r.unwritable {
		return
	}
	r.arrivals++
	d := newDice(w.seed, "consumer", hash(r.MessageID))
	needs, takes := pick(d, 1, 1, 1, 2, 3, 100), d.between(10*time.Millisecond, rule.After*3/2)
	if r.arrivals >= needs && !r.finishing {
		r.finishing = true
		time.AfterFunc(takes, func() { w.finishRow(r) })
	}
}

// finishRow is the end of a consumer's work.
func (w *world) finishRow(r *row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, down := covering(w.plan.database, w.at())
	switch {
	case r.gone:
	case w.plan.again.sent.Query != "":
		r.done = true
		w.note(0, "consumer done", name(r.Identity), "", r.arrivals)
	case down || r.status == outbox.Pending || r.status == outbox.Sending: // it waits until the row is SENT
		time.AfterFunc(20*time.Millisecond+time.Duration(r.number), func() { w.finishRow(r) })
	case r.status == outbox.Sent:
		w.consume(r)
		w.append(&entry{reason: "update"})
	}
}

// consume sets the state of the consumers. Callers hold mu.
func (w *world) consume(r *row) {
	r.status, r.consumed = outbox.Held, true
	w.note(0, "consumed", name(r.Identity), "", r.arrivals)
}

// service is the consumers' service as a process reaches it.
type service struct{ i *incarnation }

// RoundTrip implements http.RoundTripper.
func (s service) RoundTrip(q *http.Request) (*http.Response, error) {
	var in struct {
		MessageIDs []string `json:"message_ids"`
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
		return nil, err
	}
	w := s.i.w
	w.mu.Lock()
	d := w.dice("question", uint64(s.i.life))
	w.mu.Unlock()
	if err := sleep(q.Context(), d.between(time.Millisecond, 30*time.Millisecond)); err != nil {
		return nil, err
	}
	if s.i.step("question") {
		return nil, errDead
	}
	status, body := http.StatusOK, s.answer(in.MessageIDs)
	w.mu.Lock()
	deaf := d.chance(w.plan.again.deaf) && w.at() < w.plan.healed
	w.mu.Unlock()
	if deaf {
		switch d.n(4) {
		case 0:
			return nil, errors.New("connection refused")
		case 1:
			<-q.Context().Done()
			return nil, q.Context().Err()
		case 2:
			status = http.StatusInternalServerError
		default:
			body = `{"finished": []}`
		}
	} else {
		s.heard(in.MessageIDs)
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
}

// answer names those that are done.
func (s service) answer(ids []string) string {
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	done := []string{}
	for _, r := range w.lives {
		if r.done && slices.Contains(ids, r.MessageID) {
			done = append(done, r.MessageID)
		}
	}
	body, err := json.Marshal(map[string][]string{"done": done})
	if err != nil {
		w.violation("service", "%v", err)
	}
	return string(body)
}

// heard notes each result that a process gets of a row.
func (s service) heard(ids []string) {
	w := s.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.lives {
		switch {
		case !slices.Contains(ids, r.MessageID):
		case r.done:
			r.told = true
		default:
			r.of(s.i.life).asked = true
		}
	}
}

// markDone is the effect of rows.MarkDone. Callers hold mu.
func (w *world) markDone(ids []outbox.Identity) (n int64) {
	for _, id := range ids {
		r := w.byID[id]
		if r == nil || r.gone || r.status != outbox.Sent || r.locked.After(time.Now()) {
			continue
		}
		if !r.told {
			w.violation("redelivery", "%s is marked as consumed, and no consumer said that it is done", name(id))
		}
		w.consume(r)
		n++
	}
	return n
}
