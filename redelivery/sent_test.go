package redelivery

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// sentWorld returns a world with rows that are SENT since now.
func sentWorld(rows int) *world {
	w := newWorld(rows)
	for n := range w.since {
		w.sent[n] = true
	}
	return w
}

func again(after time.Duration, most int, query string) Config {
	return Config{Sent: map[string]table.Redeliver{name: {After: after, Until: "consumed", Max: most, Query: query}}}
}

// consume finishes a row as a consumer does.
func (w *world) consume(n int) {
	w.set(func() { delete(w.sent, n); delete(w.since, n) })
}

// A row that is SENT for the configured time is sent again, repeatedly at that interval, until a consumer has finished it, and at
// most as often as configured, also over restarts. Then status reports it. An owned row or one of a suspended topic is skipped.
func TestRowsGoOutAgainUntilTheyAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sentWorld(5)
		w.owned[4], w.topics[5] = true, true
		waits := &memory{w: w}
		r, stop := run(t, w, again(10*time.Minute, 3, ""), waits)
		time.Sleep(9 * time.Minute)
		if len(w.copied()) > 0 {
			t.Fatalf("too early: %v", w.copied())
		}
		w.consume(1)
		time.Sleep(2 * time.Minute)
		if w.copied()[1] != 0 || w.copied()[2] != 1 || w.copied()[3] != 1 || len(w.records()) != 2 {
			t.Fatalf("%v, counted %v", w.copied(), w.records())
		}
		w.consume(2)
		for range 12 { // a restart every 5 minutes
			stop()
			r, stop = run(t, w, again(10*time.Minute, 3, ""), waits)
			time.Sleep(5 * time.Minute)
		}
		if w.copied()[2] != 1 || w.copied()[3] != 3 || w.copied()[4]+w.copied()[5] != 0 || w.reserved() != 0 {
			t.Errorf("%v, %d held", w.copied(), w.reserved())
		}
		s, ok := r.Sent(name)
		if !ok || s.GivenUp != 1 || s.Full || s.Error != "" || len(w.records()) != 1 {
			t.Errorf("%+v, counted %v", s, w.records())
		}
		w.consume(3)
		time.Sleep(time.Minute)
		if s, _ = r.Sent(name); s.GivenUp != 0 || len(w.records()) != 0 {
			t.Errorf("%+v, counted %v", s, w.records())
		}
		stop()
		_, stop = run(t, w, Config{}, waits) // it is no longer configured
		stop()
	})
}

// Nothing is sent while the broker is away or the database does not answer, and no row loses one of its redeliveries.
func TestNothingGoesOutMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sentWorld(2)
		w.closed = true
		r, _ := run(t, w, again(time.Minute, 3, ""), &memory{w: w})
		time.Sleep(time.Hour)
		w.set(func() { w.closed, w.err = false, errors.New("gone away") })
		time.Sleep(time.Hour)
		if s, _ := r.Sent(name); len(w.copied()) > 0 || len(w.records()) > 0 || s.Error != "gone away" {
			t.Errorf("%v, counted %v, %+v", w.copied(), w.records(), s)
		}
		w.set(func() { w.err = nil })
		time.Sleep(6 * time.Minute)
		if s, _ := r.Sent(name); w.copied()[1] == 0 || s.Error != "" {
			t.Errorf("%v, %+v", w.copied(), s)
		}
	})
}

// A stop while there is no room releases the rows; each loses at most one of its redeliveries.
func TestAStopWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sentWorld(2)
		w.room = make(chan struct{})
		_, stop := run(t, w, again(time.Minute, 3, ""), &memory{w: w})
		time.Sleep(10 * time.Minute)
		stop()
		if len(w.copied()) > 0 || w.reserved() != 0 || len(w.records()) != 2 {
			t.Errorf("%v, %d held, counted %v", w.copied(), w.reserved(), w.records())
		}
	})
}

// service simulates the consumers' service.
type service struct {
	mu     sync.Mutex
	asked  [][]string
	answer func(ids []string) (status int, body string, err error)
	hang   bool
}

func (s *service) RoundTrip(q *http.Request) (*http.Response, error) {
	var in struct {
		Table      string   `json:"table"`
		MessageIDs []string `json:"message_ids"`
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil || in.Table != name || q.Method != http.MethodPost {
		return nil, errors.New("a question of another form")
	}
	s.mu.Lock()
	s.asked = append(s.asked, in.MessageIDs)
	hang, respond := s.hang, s.answer
	s.mu.Unlock()
	if hang {
		<-q.Context().Done()
		return nil, q.Context().Err()
	}
	status, body, err := respond(in.MessageIDs)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
}

func (s *service) questions() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// The consumers' service is queried first, in bounded requests: rows that are done are marked and not sent; rows that it does not
// name are sent.
func TestTheServiceIsAskedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sentWorld(250)
		svc := &service{answer: func(ids []string) (int, string, error) {
			var done []string
			for _, id := range ids {
				if id != "m7" {
					done = append(done, id)
				}
			}
			body, err := json.Marshal(map[string]any{"done": append(append(done, "m-not-in-the-request"), done...)})
			return 200, string(body), err
		}}
		cfg := again(time.Minute, 2, "http://h.example/T0KEN")
		cfg.Transport = svc
		r, _ := run(t, w, cfg, &memory{w: w})
		time.Sleep(10 * time.Minute)
		if len(w.marked()) != 249 || len(w.copied()) != 1 || w.copied()[7] != 2 || w.marked()[7] {
			t.Errorf("%d done, copies %v", len(w.marked()), w.copied())
		}
		if slices.ContainsFunc(svc.questions(), func(ids []string) bool { return len(ids) > askRows }) || len(svc.questions()) < 5 {
			t.Errorf("%d questions", len(svc.questions()))
		}
		if s, _ := r.Sent(name); s.Marked != 249 || s.GivenUp != 1 {
			t.Errorf("%+v", s)
		}
		svc.mu.Lock()
		svc.answer = func([]string) (int, string, error) { return 200, `{"done": ["m7"]}`, nil } // it is done now
		svc.mu.Unlock()
		time.Sleep(3 * time.Minute)
		if s, _ := r.Sent(name); s.GivenUp != 0 || !w.marked()[7] || len(w.records()) != 0 {
			t.Errorf("%+v, counted %v", s, w.records())
		}
	})
}

// Without a useful answer no row is sent, the service is queried at growing intervals, and status says why without the address.
func TestTheServiceIsBroken(t *testing.T) {
	for what, svc := range map[string]*service{
		"it hangs":         {hang: true},
		"it is away":       {answer: func([]string) (int, string, error) { return 0, "", errors.New("connection refused") }},
		"an error":         {answer: func([]string) (int, string, error) { return 500, `{"done": []}`, nil }},
		"a redirect":       {answer: func([]string) (int, string, error) { return 302, "", nil }},
		"no JSON":          {answer: func([]string) (int, string, error) { return 200, `canary of the answer`, nil }},
		"another form":     {answer: func([]string) (int, string, error) { return 200, `{"finished": ["m1"]}`, nil }},
		"a list of null":   {answer: func([]string) (int, string, error) { return 200, `{"done": null}`, nil }},
		"an endless reply": {answer: func([]string) (int, string, error) { return 200, `{"done": ["` + strings.Repeat("x", 2*maxAnswer), nil }},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := sentWorld(3)
				cfg := again(time.Minute, 3, "http://h.example/T0KEN")
				cfg.Transport = svc
				r, _ := run(t, w, cfg, &memory{w: w})
				time.Sleep(30 * time.Minute)
				s, _ := r.Sent(name)
				if len(w.copied()) > 0 || s.Error == "" || strings.Contains(s.Error, "T0KEN") || strings.Contains(s.Error, "canary") || len(w.records()) > 0 {
					t.Errorf("%v, %+v", w.copied(), s)
				}
				if n := counted(r.metrics.queryErrors); n < 5 || n > 15 || int(n) != len(svc.questions()) {
					t.Errorf("%v errors, %d questions", n, len(svc.questions()))
				}
			})
		})
	}
}

// The number of counted rows is bounded: at the bound no other row is sent again.
func TestCountsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sentWorld(50)
		cfg := again(time.Minute, 1, "")
		r := New(cfg, w, w, &memory{w: w}, zap.NewNop(), prometheus.NewRegistry())
		r.most = 20
		start(t, r)
		time.Sleep(time.Hour)
		if s, _ := r.Sent(name); !s.Full || len(w.copied()) != 20 || s.GivenUp != 20 || len(w.records()) != 20 {
			t.Errorf("%+v, copies %v", s, w.copied())
		}
		for n := range w.copied() {
			w.consume(n)
		}
		time.Sleep(10 * time.Second)
		if len(w.copied()) != 40 {
			t.Errorf("%d rows went out", len(w.copied()))
		}
	})
}
