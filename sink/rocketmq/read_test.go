package rocketmq

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// A topic is read back with ids and bodies, and two adjacent ranges of time return each message once.
func readBack(t *testing.T, r *testkit.RocketMQ, s *Sink) {
	const n = 100
	began := time.Now().Add(-time.Minute)
	want := map[string]string{}
	for range n / 10 { // requests of several milliseconds
		list := messages("read", "", 10)
		for _, m := range list {
			want[m.MessageID] = string(m.Body)
		}
		send(t, s, list...).want(outbox.ClassNone)
	}
	stored := readAll(t, r, "read", n)
	slices.SortFunc(stored, func(a, b testkit.RocketMQMessage) int { return a.Stored.Compare(b.Stored) })
	middle := stored[n/2].Stored
	read := func(from, to time.Time) (ids []string) {
		extent, err := s.Read(t.Context(), "read", from, to, func(m sink.Record) error {
			if body, known := want[m.MessageID]; !known || body != string(m.Body) || m.At.Before(from) || m.Position == "" {
				t.Errorf("read %+v", m)
			}
			ids = append(ids, m.MessageID)
			return nil
		})
		if err != nil || extent.Shortened {
			t.Fatalf("%+v, %v", extent, err)
		}
		return ids
	}
	first, second := read(began, middle), read(middle, time.Time{})
	early := slices.IndexFunc(stored, func(m testkit.RocketMQMessage) bool { return !m.Stored.Before(middle) })
	all := slices.Sorted(slices.Values(append(slices.Clone(first), second...)))
	if len(first) != early || len(second) != n-early || len(slices.Compact(all)) != n {
		t.Errorf("%d and %d messages, %d of them different ones, want %d and %d", len(first), len(second), len(slices.Compact(all)), early, n-early)
	}
	if none := read(time.Now().Add(time.Minute), time.Time{}); len(none) != 0 {
		t.Errorf("%d messages of the future", len(none))
	}
	if none := read(began.Add(-time.Hour), began); len(none) != 0 {
		t.Errorf("%d messages of before", len(none))
	}
	stop := errors.New("stop")
	if _, err := s.Read(t.Context(), "read", began, time.Time{}, func(sink.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
	if _, err := s.Read(t.Context(), "nowhere", began, time.Time{}, nil); err == nil || !strings.Contains(err.Error(), "topic nowhere: it does not exist") {
		t.Errorf("a topic that is not there: %v", err)
	}
}
