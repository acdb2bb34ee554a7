package alert

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A row that was retried slowly and failed again appears only in the digest. Its next failure that was not announced is
// announced, and so is the failure of any other row.
func TestARowThatFailsAgainIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		a, _, stop := run(t, w, Config{Digest: time.Now().Add(2 * time.Hour).Format("15:04")})
		a.Failed(failure(1))
		time.Sleep(time.Minute)
		a.Retried([]outbox.Identity{failure(1).Identity, failure(2).Identity})
		a.Failed(failure(1))
		a.Failed(failure(3))
		time.Sleep(time.Minute)
		a.Failed(failure(1)) // an operator had set it back
		time.Sleep(3 * time.Hour)
		stop()
		if len(w.messages) != 4 || w.messages[1].Rows[0].ID != "3" || w.messages[2].Rows[0].ID != "1" {
			t.Fatalf("%+v", w.messages)
		}
		d := w.messages[3]
		if d.Type != "digest" || *d.Failed != 3 || d.FailedAgain != 1 || !strings.HasPrefix(d.Text, "canal-outbox, : 3 messages failed since ") || !strings.HasSuffix(d.Text, ", 1 failed again") {
			t.Errorf("%+v", d)
		}
		if value(t, a.repeated) != 1 {
			t.Error("it is not counted")
		}
	})
}

// Without a webhook nothing waits for one; what is remembered of rows is bounded.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{}, zap.NewNop(), prometheus.NewRegistry())
		for n := range 3000 {
			a.Failed(failure(n))
		}
		if len(a.waiting) > 0 || value(t, a.dropped) > 0 {
			t.Errorf("%d rows wait for no webhook", len(a.waiting))
		}
		for n := range 3 * maxRetried {
			a.Retried([]outbox.Identity{failure(n).Identity})
		}
		if n := len(a.retried) + len(a.retriedBefore); n > maxRetried {
			t.Errorf("%d rows are remembered", n)
		}
		a.Failed(failure(3*maxRetried - 1))
		if value(t, a.repeated) != 1 {
			t.Error("the newest is forgotten")
		}
	})
}
