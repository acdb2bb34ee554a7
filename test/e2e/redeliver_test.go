package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Rows of the layouts into which consumers write are sent again under the same message id while no consumer finishes them, up to
// the configured number of times and over a kill. They stay SENT, and status reports them. A row that a consumer finishes is not
// sent again. A broken service delays no row; when it answers, the rows that it reports as done are marked.
func TestRowsThatNoConsumerFinishes(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		var mu sync.Mutex
		answers, asked := false, 0
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked++
			now := answers
			mu.Unlock()
			if !now {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
				return
			}
			var q struct {
				IDs []string `json:"message_ids"`
			}
			testkit.Must(t, json.NewDecoder(r.Body).Decode(&q))
			testkit.Must(t, json.NewEncoder(w).Encode(map[string]any{"done": q.IDs}))
		}))
		defer service.Close()
		l := newLayouts(t, testkit.SharedDatabase(t, flavor), fake(t), "retry: {max: 1}", some("B", "C", "E")...)
		l.Edit(
			t,
			"preset: message-state", "redeliver: {after: 1s, max: 2}, preset: message-state",
			"preset: local_message_table", "redeliver: {after: 2s, max: 2}, preset: local_message_table",
			"preset: order-chain", `codes: {done: 4}, redeliver: {after: 1s, until: done, state_query: "`+service.URL+`/T0KEN"}, preset: order-chain`,
		)
		l.Start(t)
		l.insert(1, topics[0], false)
		l.insert(2, topics[0], false)
		b, c, e := l.all[0], l.all[1], l.all[2]
		done := l.consumedInTime(c, 2)
		l.is(b, 2, "sent", b.Written)
		l.is(e, done, "sent", e.Written)
		copies := func(id string) (n int) {
			for _, r := range relay.ReadAll(t, l.broker, topics...) {
				if r.MessageID == id {
					n++
				}
			}
			return n
		}
		l.wait("a second copy of B", func() bool { return copies(b.MessageID(1)) >= 2 })
		l.Kill()
		l.Start(t)
		l.wait("every row to go out so often as it may", func() bool {
			return copies(b.MessageID(1)) >= 3 && copies(b.MessageID(2)) >= 3 && copies(c.MessageID(1)) >= 4
		})
		l.wait("status to say so", func() bool {
			s, err := l.Status()
			return err == nil && strings.Contains(strings.Join(s.Problems, "\n"), "were sent again 2 times and are not consumed: check the consumers")
		})
		if n := copies(b.MessageID(1)); n != 3 {
			t.Errorf("%d copies", n)
		}
		l.is(b, 1, "sent", b.Written)
		l.is(c, 1, "sent", c.Written)
		l.is(c, done, "consumed", "TRUE")
		// C and E make the same message ids, and each row of E goes out once, because the service does not answer.
		if first, second := copies(c.MessageID(1)), copies(c.MessageID(done)); first != 3+1 || second != 1+1 {
			t.Errorf("%d copies, and %d of a row that a consumer has finished", first, second)
		}
		l.insert(3, topics[0], false) // while the service is broken
		l.is(e, 3, "sent", e.Written)
		l.is(c, 3, "sent", c.Written)
		l.exec("UPDATE `" + c.Table + "` SET state = 2 WHERE state = 1")
		mu.Lock()
		if answers = true; asked == 0 {
			t.Error("the service was not asked")
		}
		mu.Unlock()
		for n := 1; n <= 3; n++ {
			l.shows(e, n, "status = 4")
		}
		if n := copies(e.MessageID(1)); n != 3+1 {
			t.Errorf("%d copies of what is done", n)
		}
		l.wait("C to be well again", func() bool {
			s, err := l.Status()
			return err == nil && len(s.Tables) == 3 && s.Tables[1].Redelivery != nil && s.Tables[1].Redelivery.GivenUp == 0
		})
		out, _, _ := l.Command(t, "status")
		if strings.Contains(out, "T0KEN") || !strings.Contains(out, "SENT ones that are not consumed go out again after 1s") {
			t.Errorf("status says\n%s", out)
		}
		out, _, _ = l.Command(t, "doctor")
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "rows that are SENT for 2s (counted from update_time) and not consumed go out again, 2 times at most") {
			t.Errorf("doctor says\n%s", out)
		}
		l.stopInTime()
	})
}

// consumedInTime has a consumer finish row n of layout C before it is due to go out again, and returns which row that was: where the machine
// is too busy for it, another one from 10 on.
func (l *everyLayout) consumedInTime(c *layouts.Layout, n int) int {
	l.t.Helper()
	for {
		l.is(c, n, "sent", c.Written)
		result, err := l.sql.ExecContext(l.t.Context(), "UPDATE `"+c.Table+"` SET state = 2, update_time = NOW() WHERE "+c.Where(n)+
			" AND update_time > NOW() - INTERVAL 1 SECOND")
		testkit.Must(l.t, err)
		changed, err := result.RowsAffected()
		testkit.Must(l.t, err)
		if changed == 1 {
			return n
		}
		n = max(n, 9) + 1
		l.insert(n, topics[0], false)
	}
}
