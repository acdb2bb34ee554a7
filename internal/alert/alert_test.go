package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // for machines without time zones

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func failure(n int) outbox.Completion {
	return outbox.Completion{
		Identity: outbox.Identity{Table: "shop.t", ID: fmt.Sprint(n), MessageID: fmt.Sprint("order:", n)}, Topic: "orders", Key: fmt.Sprint("k-", n), BizType: "refund",
		Action: outbox.ActionFail, RetryCount: 4, Class: outbox.ClassRefused, Reason: "no",
	}
}

// webhook takes the place of the network: tests in virtual time have none.
type webhook struct {
	mu       sync.Mutex
	at       []time.Time
	messages []message
	answer   func(ctx context.Context, n int) (status int, err error) // nil: 200
}

func (w *webhook) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	w.mu.Lock()
	n := len(w.at)
	w.at, w.messages = append(w.at, time.Now()), append(w.messages, m)
	w.mu.Unlock()
	status := 200
	if w.answer != nil {
		if status, err = w.answer(r.Context(), n); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Body: io.NopCloser(&bytes.Buffer{}), Request: r}, nil
}

// run has an Alerter at work in virtual time; stop ends it.
func run(t *testing.T, w *webhook, cfg Config) (a *Alerter, logs *observer.ObservedLogs, stop func()) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	cfg.Webhook, cfg.Transport = "https://hooks.example/services/T0KEN", w
	a = New(cfg, zap.New(core), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { a.Run(ctx) })
	return a, logs, func() { cancel(); done.Wait() }
}

func value(t *testing.T, c prometheus.Counter) int {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// The webhook gets a signed POST that it can check, with the fields that a person needs to find the row.
func TestTheMessageIsSigned(t *testing.T) {
	const secret = "a secret of the receiver"
	got := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		timestamp := r.Header.Get("X-Canal-Outbox-Timestamp")
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" ||
			r.Header.Get("X-Canal-Outbox-Signature") != sign(secret, timestamp, body) {
			t.Errorf("%s with headers %v", r.Method, r.Header)
		}
		// A value computed by another program: printf '1.{}' | openssl dgst -sha256 -hmac key
		if want := "sha256=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224"; sign("key", "1", []byte("{}")) != want {
			t.Errorf("signature %s", sign("key", "1", []byte("{}")))
		}
		got <- body
	}))
	defer server.Close()
	a := New(Config{
		Webhook: server.URL + "/path?token=x", Secret: setting.NewSecret(secret), Source: "db:3306", Host: "relay-1",
	}, zap.NewNop(), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { a.Run(ctx) })
	c := failure(17)
	c.Reason = strings.Repeat("ä", 400)
	a.Failed(c)
	var m message
	if err := json.Unmarshal(<-got, &m); err != nil {
		t.Fatal(err)
	}
	cancel()
	done.Wait()
	a.client.CloseIdleConnections()
	http.DefaultClient.CloseIdleConnections()
	if len(m.Rows) != 1 || m.Type != "failed" || m.Source != "db:3306" || m.Host != "relay-1" || time.Since(m.At).Abs() > time.Hour {
		t.Fatalf("%+v", m)
	}
	want := Row{"shop.t", "17", "order:17", "refund", "k-17", "orders", 5, "refused", strings.Repeat("ä", 250) + "..."}
	if m.Rows[0] != want || !strings.Contains(m.Text, "order:17") {
		t.Errorf("%+v", m)
	}
}

// What fails together is reported together, at most one message every five seconds, a hundred rows in one.
func TestAFloodIsFewMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		a, _, stop := run(t, w, Config{})
		for n := range 250 {
			a.Failed(failure(n))
		}
		time.Sleep(time.Minute)
		stop()
		next := 0
		for i, m := range w.messages {
			if i > 0 && w.at[i].Sub(w.at[i-1]) < 5*time.Second {
				t.Errorf("message %d comes %v after the one before", i, w.at[i].Sub(w.at[i-1]))
			}
			for _, r := range m.Rows {
				if r.ID != fmt.Sprint(next) {
					t.Fatalf("row %s, want %d", r.ID, next)
				}
				next++
			}
			if left := 250 - next; m.Waiting != left {
				t.Errorf("%d rows wait, it says %d", left, m.Waiting)
			}
		}
		sent, dropped := value(t, a.sent), value(t, a.dropped)
		if len(w.messages) != 3 || next != 250 || sent != 250 || dropped != 0 {
			t.Errorf("%d messages, %d rows, %d sent, %d dropped", len(w.messages), next, sent, dropped)
		}
	})
}

// A webhook that fails is asked again, with growing pauses, until it takes the rows; the log has two lines and no address.
func TestAFailingWebhookIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{answer: func(_ context.Context, n int) (int, error) {
			switch {
			case n == 0:
				return 0, errors.New("connection refused")
			case n == 1:
				return 302, nil
			case n < 8:
				return 503, nil
			}
			return 204, nil
		}}
		a, logs, stop := run(t, w, Config{})
		a.Failed(failure(1))
		time.Sleep(30 * time.Second)
		a.Failed(failure(2))
		time.Sleep(10 * time.Minute)
		stop()
		last := w.messages[len(w.messages)-1]
		if len(w.messages) != 9 || len(last.Rows) != 2 || last.Rows[0].ID != "1" {
			t.Errorf("%d attempts, the last with %+v", len(w.messages), last)
		}
		if a, b := w.at[2].Sub(w.at[1]), w.at[5].Sub(w.at[4]); b < 2*a {
			t.Errorf("the pauses do not grow: %v, %v", a, b)
		}
		if sent, dropped := value(t, a.sent), value(t, a.dropped); sent != 2 || dropped != 0 || value(t, a.errors) != 8 {
			t.Errorf("%d sent, %d dropped, %d errors", sent, dropped, value(t, a.errors))
		}
		if logs.Len() != 2 {
			t.Errorf("%d lines", logs.Len())
		}
		for _, line := range logs.All() {
			if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "T0KEN") || line.Level == zapcore.WarnLevel && !strings.Contains(text, "hooks.example") {
				t.Errorf("%s", text)
			}
		}
	})
}

// A webhook that hangs blocks no other work: further failures are accepted, the oldest waiting rows are dropped and counted, and
// the first message afterwards gives their number.
func TestAHangingWebhookDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		w := &webhook{answer: func(ctx context.Context, _ int) (int, error) {
			select {
			case <-released:
				return 200, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		a, _, stop := run(t, w, Config{})
		began := time.Now()
		for n := range 3000 {
			a.Failed(failure(n))
			if n == 50 {
				time.Sleep(2 * time.Second) // the first request is on its way
				began = time.Now()
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("Failed took %v", time.Since(began))
		}
		a.mu.Lock()
		if n := len(a.waiting); n != maxWaiting {
			t.Errorf("%d rows wait", n)
		}
		a.mu.Unlock()
		time.Sleep(15 * time.Second) // the attempt has ended
		close(released)
		time.Sleep(5 * time.Minute)
		stop()
		delivered := w.messages[0:0]
		for _, m := range w.messages {
			if m.Rows[0].ID != "0" {
				delivered = append(delivered, m)
			}
		}
		if len(delivered) == 0 || delivered[0].Rows[0].ID != "2000" || delivered[0].Dropped != 2000 || delivered[len(delivered)-1].Dropped != 0 {
			t.Errorf("the first delivered message is %+v", delivered[0])
		}
		if sent, dropped := value(t, a.sent), value(t, a.dropped); sent != 1000 || dropped != 2000 {
			t.Errorf("%d sent, %d dropped", sent, dropped)
		}
	})
}

// A stop tries once more, for two seconds at most.
func TestAStopTriesOnceMore(t *testing.T) {
	for name, answer := range map[string]func(context.Context, int) (int, error){
		"it answers": nil,
		"it hangs":   func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &webhook{answer: answer}
				a, logs, stop := run(t, w, Config{})
				synctest.Wait()
				a.Failed(failure(1))
				began := time.Now()
				stop()
				if took := time.Since(began); took > lastTimeout {
					t.Errorf("the stop took %v", took)
				}
				sent, dropped := value(t, a.sent), value(t, a.dropped)
				if answer == nil && (sent != 1 || dropped != 0 || logs.Len() != 0) || answer != nil && (sent != 0 || dropped != 1 || logs.Len() != 1) {
					t.Errorf("%d sent, %d dropped, %d lines", sent, dropped, logs.Len())
				}
			})
		})
	}
}

// The digest comes once a day at its time, whatever the failures do, with what is in the tables.
func TestTheDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &webhook{}
		a, _, stop := run(t, w, Config{
			Digest: "08:00", Tables: func() []Table { return []Table{{Table: "shop.t", Failed: 3}} },
		})
		a.Failed(failure(1))
		time.Sleep(72 * time.Hour)
		stop()
		var failed []int
		for i, m := range w.messages {
			if m.Type != "digest" {
				continue
			}
			if clock := w.at[i].Local().Format("15:04"); clock != "08:00" {
				t.Errorf("it comes at %s", clock)
			}
			if len(m.Tables) != 1 || m.Tables[0].Failed != 3 || !strings.Contains(m.Text, "shop.t has 3 FAILED rows") {
				t.Errorf("%+v", m)
			}
			failed = append(failed, *m.Failed)
		}
		if fmt.Sprint(failed) != "[1 0 0]" {
			t.Errorf("failures in the digests: %v", failed)
		}
	})
}

// The digest's time is the wall clock's, on days of 23 and 25 hours too.
func TestNextDigest(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]string{
		"2026-03-28 08:00": "2026-03-29 08:00", "2026-10-24 07:59": "2026-10-24 08:00", "2026-10-24 08:01": "2026-10-25 08:00",
		"2026-12-31 23:59": "2027-01-01 08:00",
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04", now, berlin)
		if err != nil {
			t.Fatal(err)
		}
		if got := nextDigest("08:00", at).Format("2006-01-02 15:04"); got != want {
			t.Errorf("after %s comes %s, want %s", now, got, want)
		}
	}
}

// Without a webhook there are the metrics and nothing else.
func TestWithoutAWebhook(t *testing.T) {
	reg := prometheus.NewRegistry()
	a := New(Config{}, zap.NewNop(), reg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.Run(ctx)
	if families, err := reg.Gather(); err != nil || len(families) != 4 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
}
