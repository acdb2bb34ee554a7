package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestOrders(t *testing.T) {
	seen, regretted, several := map[string]bool{}, 0, 0
	for n := range int64(1000) {
		o := newOrder(n, "orders")
		if o.regretted {
			regretted++
		}
		if len(o.events) > 1 {
			several++
		}
		for i, m := range o.rows() {
			body := o.body(o.events[i])
			if seen[m.MessageID] {
				t.Fatalf("message id %s twice", m.MessageID)
			}
			seen[m.MessageID] = true
			if len(body) < 150 || len(body) > 700 {
				t.Fatalf("body of %d bytes: %s", len(body), body)
			}
			if string(m.Body) != body || m.Key != o.key() {
				t.Fatalf("the ledger gets %+v", m)
			}
		}
	}
	if regretted != 50 || several != 100 {
		t.Errorf("%d rolled back, %d with several messages, of 1000", regretted, several)
	}
}

func TestRelayConfiguration(t *testing.T) {
	for _, sink := range []string{kafka("127.0.0.1:9092", "orders").sink, "{" + relay.RocketMQSink("127.0.0.1:9876") + "}"} {
		dir := t.TempDir()
		text := configuration("127.0.0.1:3306", sink, dir, "127.0.0.1:9180")
		cfg, _, err := config.Parse("demo", []byte(text), nil, app.Sinks)
		testkit.Must(t, err)
		if cfg.Tables[0].Name != tableName || cfg.Source.Password.Get() != relayPassword || cfg.Sink.Kind() == "" {
			t.Errorf("%+v", cfg)
		}
		if filepath.Dir(cfg.Checkpoint.Dir) != dir {
			t.Errorf("the state is in %s, outside of the demo's directory", cfg.Checkpoint.Dir)
		}
	}
}

func TestScreenOnATerminalRedraws(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, func(err error) { t.Error(err) })
	s.terminal = true
	s.Progress("head", "1s")
	s.Progress("head", "2s")
	s.Say("event")
	s.Progress("head", "3s")
	s.Keep()
	s.Keep()
	const erase = "\r\x1b[K\x1b[A\r\x1b[K"
	if want := "head\n1s" + erase + "head\n2s" + erase + "event\nhead\n3s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestScreenElsewherePrintsLines(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out, func(err error) { t.Error(err) })
	s.Progress("head", "1s")
	s.Say("event")
	s.Progress("head", "2s")
	s.Keep()
	if want := "\nhead\n1s\nevent\n2s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestScreenReportsABrokenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	defer w.Close()
	testkit.Must(t, r.Close())
	var broken error
	newScreen(w, func(err error) { broken = errors.Join(broken, err) }).Say("hello")
	if broken == nil {
		t.Error("the failed write was not reported")
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q", n, got)
		}
	}
	for d, want := range map[time.Duration]string{400 * time.Microsecond: "0.4ms", 45 * time.Millisecond: "45ms", 2440 * time.Millisecond: "2.4s"} {
		if got := brief(d); got != want {
			t.Errorf("brief(%v) = %q", d, got)
		}
	}
}

// A lost message must not keep the demo waiting because newer ones and copies continue to arrive.
func TestWaitingForALostMessageEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var out strings.Builder
		l := newSides()
		d := &demo{book: l.book, screen: newScreen(&out, func(err error) { t.Error(err) })}
		d.book.Committed(row("lost"), time.Now().Add(-time.Second))
		go func() {
			for n := 0; relay.Pause(ctx, time.Second) == nil; n++ {
				pair(l, fmt.Sprint(n), 2)
			}
		}()
		if err := d.caughtUp(ctx, time.Now()); err != nil || !strings.Contains(out.String(), "1 of them are still not published") {
			t.Errorf("%v: %s", err, out.String())
		}
		cancel()
		synctest.Wait()
	})
}
