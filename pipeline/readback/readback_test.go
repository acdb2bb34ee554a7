package readback

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var died = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// broker is a reader whose topics have records that appear after a number of looks.
type broker struct {
	sink.CommittedReader
	topics map[string][]late
	looks  map[string]int
	from   map[string]time.Time // of the last reading
	extent sink.Extent
	err    error
	hangs  bool
	unsafe error // what Committed returns
	away   error // what Reachable returns
	probed int   // how often
	asked  int   // how often
}

func (b *broker) Committed(ctx context.Context, _ string) error {
	b.asked++
	return cmp.Or(ctx.Err(), b.unsafe)
}

func (b *broker) Reachable(ctx context.Context) error {
	b.probed++
	return cmp.Or(ctx.Err(), b.away)
}

type late struct {
	sink.Record
	after int
}

func (b *broker) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	if b.hangs {
		<-ctx.Done()
		return sink.Extent{}, ctx.Err()
	}
	if b.from[topic].IsZero() || !to.Equal(b.from[topic]) { // the next part of a look ends where the last one began
		b.looks[topic]++
	}
	b.from[topic] = from
	look := b.looks[topic] - 1
	for _, r := range b.topics[topic] {
		if r.At.Before(from) || !r.At.Before(to) || r.after > look {
			continue
		}
		if err := each(r.Record); err != nil {
			return b.extent, err
		}
	}
	return b.extent, b.err
}

func record(id, body string) late {
	return late{Record: sink.Record{MessageID: id, Body: []byte(body), At: died}}
}

func message(topic, id, body string) *outbox.Message {
	return &outbox.Message{Identity: outbox.Identity{Table: "shop.t", ID: id, MessageID: id}, Topic: topic, Body: []byte(body)}
}

// trial is a read-back over a broker.
type trial struct {
	*ReadBack
	*broker
	logs *observer.ObservedLogs
}

func try(t *testing.T, b *broker, f func(t *testing.T, b trial)) {
	synctest.Test(t, func(t *testing.T) {
		b.looks, b.from = map[string]int{}, map[string]time.Time{}
		core, logs := observer.New(zap.InfoLevel)
		cfg := Config{Claims: died.Add(-time.Second), Names: func(table string) bool { return table != "shop.numbers" }, From: died.Add(-time.Second), To: died.Add(time.Second), MaxBytes: 100, MaxTime: 5 * time.Second}
		f(t, trial{New(cfg, b, zap.New(core), prometheus.NewRegistry()), b, logs})
	})
}

// warned returns the numbers of rows that may be copies, one for each warning.
func (b trial) warned() (rows []int64) {
	for _, line := range b.logs.FilterLevelExact(zap.WarnLevel).All() {
		rows = append(rows, line.ContextMap()["rows"].(int64))
	}
	return rows
}

// The bound of bytes leaves out the oldest records, not the newest.
func TestTheNewestRecordsAreReadFirst(t *testing.T) {
	var records []late
	var list []*outbox.Message
	for n := range 60 { // 3 bytes each, of 100
		r := record(strconv.Itoa(100+n), "")
		r.At = died.Add(time.Duration(n-60) * time.Second)
		records = append(records, r)
		list = append(list, message("a", r.MessageID, ""))
	}
	try(t, &broker{topics: map[string][]late{"a": records}}, func(t *testing.T, b trial) {
		b.last = newPeriod(b.ReadBack, died.Add(-time.Minute), died.Add(time.Second))
		got := b.Sent(t.Context(), list)
		if slices.Contains(got[46:], false) || count(got) == 60 || !slices.Equal(b.warned(), []int64{int64(60 - count(got))}) {
			t.Errorf("%d of %v sent, warned of %v", count(got), got, b.warned())
		}
	})
}

// A topic that is compacted, or has lost old records, is read to its end all the same.
func TestWhatIsLeftOfATopicIsRead(t *testing.T) {
	old := record("1", "a")
	old.At = died.Add(-50 * time.Second)
	for _, extent := range []sink.Extent{{Compacted: true}, {Shortened: true}} {
		try(t, &broker{topics: map[string][]late{"a": {old, record("2", "a")}}, extent: extent}, func(t *testing.T, b trial) {
			b.last = newPeriod(b.ReadBack, died.Add(-time.Minute), died.Add(time.Second))
			got := b.Sent(t.Context(), []*outbox.Message{message("a", "1", "a"), message("a", "2", "a"), message("a", "3", "a")})
			if !slices.Equal(got, []bool{true, true, false}) || !slices.Equal(b.warned(), []int64{1}) {
				t.Errorf("%+v: sent %v, warned of %v", extent, got, b.warned())
			}
		})
	}
}

func count(got []bool) (n int) {
	for _, is := range got {
		if is {
			n++
		}
	}
	return n
}

// A row that an operator has set back goes out though its topic has it, and keeps no other from being found.
func TestRowsThatAreSetBackAreSent(t *testing.T) {
	try(t, &broker{topics: map[string][]late{"a": {record("1", "a"), record("2", "a")}}}, func(t *testing.T, b trial) {
		list := []*outbox.Message{message("a", "1", "a"), message("a", "2", "a")}
		b.SetBack([]outbox.Identity{list[0].Identity})
		if got := b.Sent(t.Context(), list); got[0] || !got[1] {
			t.Errorf("sent %v", got)
		}
	})
}

// Late in the search a row of a sweep that is PENDING may be one that a person has set back, and is sent; one is looked for that is
// claimed, or shows that no status was ever written.
func TestLateOnlyClaimedRowsOfASweepAreLookedFor(t *testing.T) {
	try(t, &broker{topics: map[string][]late{"a": {record("1", "a"), record("2", "a"), record("3", "a"), record("4", "a")}}}, func(t *testing.T, b trial) {
		list := []*outbox.Message{message("a", "1", "a"), message("a", "2", "a"), message("a", "3", "a"), message("a", "4", "a")}
		list[0].Path, list[0].Status = outbox.PathSweep, outbox.Sending
		list[1].Path, list[1].Status = outbox.PathSweep, outbox.Pending
		list[3].Path, list[3].Untouched = outbox.PathSweep, true
		b.OnlyClaimed()
		if got := b.Sent(t.Context(), list); !slices.Equal(got, []bool{true, false, true, true}) {
			t.Errorf("sent %v", got)
		}
	})
}

// A row of a sweep may have been sent by a process before the last one, whose claim is still there: only for such rows, when they were not found, the
// time since then is read, and what cannot be read of it leaves what was found.
func TestRowsOfASweepAreLookedForInAnEarlierPeriod(t *testing.T) {
	claimed := record("2", "a")
	claimed.At = died.Add(-time.Minute)
	swept := func(id string) *outbox.Message {
		m := message("a", id, "a")
		m.Path = outbox.PathSweep
		return m
	}
	for name, c := range map[string]struct {
		list   []*outbox.Message
		sent   []bool
		looks  int
		claims time.Duration // before From
	}{
		"of the log":           {list: []*outbox.Message{message("a", "1", "a"), message("a", "2", "a")}, sent: []bool{true, false}, looks: 2, claims: time.Hour},
		"found":                {list: []*outbox.Message{swept("1")}, sent: []bool{true}, looks: 2, claims: time.Hour},
		"of a sweep":           {list: []*outbox.Message{swept("1"), swept("2"), swept("3")}, sent: []bool{true, true, false}, looks: 4, claims: time.Hour},
		"before all claims":    {list: []*outbox.Message{swept("2")}, sent: []bool{false}, looks: 4, claims: time.Second},
		"no claim may stand":   {list: []*outbox.Message{swept("2")}, sent: []bool{false}, looks: 2},
		"too much before that": {list: []*outbox.Message{swept("big"), swept("1"), swept("2")}, sent: []bool{false, true, false}, looks: 3, claims: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			topics := map[string][]late{"a": {claimed, record("1", "a")}}
			if name == "too much before that" {
				big := record("big", string(make([]byte, 200)))
				big.At = claimed.At
				topics["a"] = append([]late{big}, topics["a"]...)
			}
			try(t, &broker{topics: topics}, func(t *testing.T, b trial) {
				if c.claims > 0 {
					b.earlier = newPeriod(b.ReadBack, b.cfg.From.Add(-c.claims), b.cfg.From.Add(-time.Nanosecond)) // its looks are told from the last ones
				}
				if got := b.Sent(t.Context(), c.list); !slices.Equal(got, c.sent) || b.looks["a"] != c.looks {
					t.Errorf("sent %v after %d looks", got, b.looks["a"])
				}
			})
		})
	}
}

// A row that was set back is sent also when the search ends while it is looked for.
func TestTheSearchEndsWhileARowThatIsSetBackIsLookedFor(t *testing.T) {
	try(t, &broker{topics: map[string][]late{"a": {record("1", "a"), record("2", "a")}}}, func(t *testing.T, b trial) {
		list := []*outbox.Message{message("a", "1", "a"), message("a", "2", "a")}
		b.SetBack([]outbox.Identity{list[0].Identity})
		time.AfterFunc(still/2, b.End)
		if got := b.Sent(t.Context(), list); got[0] || !got[1] {
			t.Errorf("sent %v", got)
		}
		synctest.Wait() // until End has returned
		if b.setBack != nil || len(b.last.topics) > 0 {
			t.Error("what was known is not forgotten")
		}
	})
}

// The number of rows that are set back is bounded: beyond that nothing is looked for, and nothing counts as sent.
func TestSoManyRowsAreSetBack(t *testing.T) {
	try(t, &broker{topics: map[string][]late{"a": {record("1", "a")}}}, func(t *testing.T, b trial) {
		ids := make([]outbox.Identity, maxSetBack)
		for i := range ids {
			ids[i].ID = strconv.Itoa(i)
		}
		b.SetBack(ids)
		b.SetBack([]outbox.Identity{{ID: "one more"}})
		if got := b.Sent(t.Context(), []*outbox.Message{message("a", "1", "a")}); got[0] || b.looks["a"] > 0 {
			t.Errorf("sent %v after %d looks", got, b.looks["a"])
		}
	})
}

// Only a record of the topic, the message id, the body and the time is a proof; one that may be of an aborted transaction is none.
func TestOnlyAnEqualRecordIsAProof(t *testing.T) {
	aborted, old, later := record("4", "a"), record("5", "a"), record("6", "a")
	aborted.Transactional = true
	old.At, later.At = died.Add(-time.Hour), died.Add(time.Hour)
	try(t, &broker{topics: map[string][]late{"a": {record("1", "a"), record("2", "b"), aborted, old, later, record("", "a")}, "b": {record("3", "a")}}}, func(t *testing.T, b trial) {
		var list []*outbox.Message
		for _, id := range []string{"1", "2", "3", "4", "5", "6", ""} {
			list = append(list, message("a", id, "a"))
		}
		want := []bool{true, false, false, false, false, false, false}
		if got := b.Sent(t.Context(), list); !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		var count dto.Metric
		if err := b.metrics.found.Write(&count); err != nil || count.GetCounter().GetValue() != 1 || len(b.warned()) != 0 {
			t.Errorf("%v, %v found, warnings %v", err, count.GetCounter().GetValue(), b.warned())
		}
		if got := b.Sent(t.Context(), list); !slices.Equal(got, want) || b.looks["a"] != 2 {
			t.Errorf("asked again: %v after %d looks", got, b.looks["a"])
		}
		number := message("a", "1", "a") // as the first one, of a table whose ids are not unique among tables
		number.Table = "shop.numbers"
		if got := b.Sent(t.Context(), []*outbox.Message{number}); got[0] {
			t.Error("an equal id of another table is taken for a proof")
		}
		b.End()
		if got := b.Sent(t.Context(), list); slices.Contains(got, true) {
			t.Errorf("after the end: %v", got)
		}
	})
}

// A broker that does not answer is waited for, which is logged once; one that has answered is not asked again.
func TestABrokerThatComesBackLaterIsWaitedFor(t *testing.T) {
	try(t, &broker{away: errors.New("connection refused")}, func(t *testing.T, b trial) {
		for range 3 {
			if err := b.Ready(t.Context()); !errors.Is(err, outbox.ErrBrokerAway) || !errors.Is(err, b.away) {
				t.Errorf("not ready: %v", err)
			}
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := b.Ready(stopped); !errors.Is(err, context.Canceled) || errors.Is(err, outbox.ErrBrokerAway) {
			t.Errorf("after a stop: %v", err)
		}
		b.away = nil
		for range 3 {
			if err := b.Ready(t.Context()); err != nil {
				t.Errorf("ready: %v", err)
			}
		}
		if b.probed != 5 || b.logs.Len() != 2 {
			t.Errorf("%d probes, logged %v", b.probed, b.logs.All())
		}
	})
	try(t, &broker{away: errors.New("connection refused")}, func(t *testing.T, b trial) {
		b.End()
		if err := b.Ready(t.Context()); err != nil || b.probed > 0 {
			t.Errorf("after the end: %v, %d probes", err, b.probed)
		}
	})
}

// What the broker stores after the first look is found, as long as each look shows more.
func TestTheBrokerAppendsLate(t *testing.T) {
	one, two, never := record("1", "x"), record("2", "x"), record("3", "x")
	one.after, two.after, never.after = 0, 1, 4
	try(t, &broker{topics: map[string][]late{"a": {one, two, never}}}, func(t *testing.T, b trial) {
		began := time.Now()
		got := b.Sent(t.Context(), []*outbox.Message{message("a", "1", "x"), message("a", "2", "x"), message("a", "3", "x")})
		if !slices.Equal(got, []bool{true, true, false}) || time.Since(began) != 2*still {
			t.Errorf("sent %v after %v", got, time.Since(began))
		}
	})
}

// Beyond the bounds, or when the topic cannot be read, rows that were not found are sent and counted in a warning; it takes no longer than
// MaxTime, for all topics.
func TestReadingIsBounded(t *testing.T) {
	big := record("2", string(make([]byte, 200)))
	for name, c := range map[string]struct {
		broker broker
		time   time.Duration
	}{
		"bytes":     {broker: broker{topics: map[string][]late{"a": {record("1", "x"), big, record("3", "x")}}}},
		"no right":  {broker: broker{topics: map[string][]late{"a": {record("1", "x")}}, err: errors.New("grant READ")}},
		"deleted":   {broker: broker{topics: map[string][]late{"a": {record("1", "x")}}, extent: sink.Extent{Shortened: true}}},
		"compacted": {broker: broker{topics: map[string][]late{"a": {record("1", "x")}}, extent: sink.Extent{Compacted: true}}},
		"unsafe":    {broker: broker{topics: map[string][]late{"a": {record("1", "x")}}, unsafe: errors.New("not flushed")}},
		"silent":    {broker: broker{hangs: true}, time: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, &c.broker, func(t *testing.T, b trial) {
				began := time.Now()
				got := b.Sent(t.Context(), []*outbox.Message{message("a", "1", "x"), message("a", "3", "x")})
				found, maybe := !b.hangs && b.unsafe == nil, int64(1)
				if !found {
					maybe = 2
				}
				if got[0] != found || got[1] || time.Since(began) != c.time || !slices.Equal(b.warned(), []int64{maybe}) {
					t.Errorf("sent %v after %v, warnings %v", got, time.Since(began), b.warned())
				}
				if b.unsafe != nil && b.asked != 1 {
					t.Errorf("asked %d times whether records are safe", b.asked)
				}
				if b.Sent(t.Context(), []*outbox.Message{message("b", "1", "x")}); time.Since(began) > c.time+2*still {
					t.Errorf("with a second topic it took %v", time.Since(began))
				}
			})
		})
	}
}
