package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var day = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// produce stores records with their own times, without the sink.
func produce(t *testing.T, addr string, records ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, r := range records { // each in its own batch: kfake searches by the time of batches
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func numbered(topic string, n int, at time.Time) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Partition: int32(n % 4), Value: fmt.Append(nil, "body ", n), Timestamp: at,
		Headers: []kgo.RecordHeader{{Key: "other", Value: []byte("x")}, {Key: HeaderMessageID, Value: fmt.Append(nil, n)}},
	}
}

func readIDs(t *testing.T, s *Sink, topic string, from, to time.Time) (ids []string, extent sink.Extent) {
	t.Helper()
	extent, err := s.Read(t.Context(), topic, from, to, func(r sink.Record) error {
		if r.MessageID != "" && string(r.Body) != "body "+r.MessageID {
			t.Errorf("message %s has the body %q", r.MessageID, r.Body)
		}
		ids = append(ids, r.MessageID)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	return ids, extent
}

// A read returns the records between two times, and two adjacent reads return each record once.
func TestReadBetweenTimes(t *testing.T) {
	c := newFake(t)
	topic := createTopic(t, c.Addr(), nil)
	s := newSink(t, c.Addr())
	var records []*kgo.Record
	for n := range 200 {
		records = append(records, numbered(topic, n, day.Add(time.Duration(n)*time.Minute)))
	}
	records = append(records, &kgo.Record{Topic: topic, Timestamp: day.Add(200 * time.Minute)}) // of another producer, no body
	produce(t, c.Addr(), records...)

	minute := func(n int) time.Time { return day.Add(time.Duration(n) * time.Minute) }
	first, _ := readIDs(t, s, topic, minute(50), minute(80))
	rest, _ := readIDs(t, s, topic, minute(80), time.Time{})
	if len(first) != 30 || slices.Contains(first, "49") || !slices.Contains(first, "50") || !slices.Contains(first, "79") {
		t.Errorf("between 50 and 80: %v", first)
	}
	if len(rest) != 121 || rest[0] != "" || slices.Contains(rest, "79") || !slices.Contains(rest, "80") {
		t.Errorf("from 80 on: %v", rest)
	}
	all, extent := readIDs(t, s, topic, day.Add(-time.Hour), minute(1000))
	if len(all) != 201 || extent.Shortened {
		t.Errorf("%d of all, %+v", len(all), extent)
	}
	for _, span := range [][2]time.Time{{minute(300), minute(400)}, {minute(300), {}}, {day.Add(-2 * time.Hour), day.Add(-time.Hour)}} {
		if none, _ := readIDs(t, s, topic, span[0], span[1]); len(none) != 0 {
			t.Errorf("of %v: %v", span, none)
		}
	}
	if empty, _ := readIDs(t, s, createTopic(t, c.Addr(), nil), day, time.Time{}); len(empty) != 0 {
		t.Errorf("of an empty topic: %v", empty)
	}
	stop := errors.New("stop")
	if _, err := s.Read(t.Context(), topic, day, time.Time{}, func(sink.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped with %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Read(ctx, topic, day, time.Time{}, func(sink.Record) error { return nil }); err == nil {
		t.Error("read though the context had ended")
	}
	if _, err := s.Read(t.Context(), "missing", day, time.Time{}, nil); err == nil || !strings.Contains(err.Error(), "topic missing") {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// A range from which retention has removed records is reported as shortened.
func TestReadReportsAShortenedTopic(t *testing.T) {
	c := newFake(t)
	topic := createTopic(t, c.Addr(), nil)
	s := newSink(t, c.Addr())
	var records []*kgo.Record
	for n := range 40 {
		records = append(records, numbered(topic, n, day.Add(time.Duration(n)*time.Minute)))
	}
	produce(t, c.Addr(), records...)
	admin(t, c.Addr(), func(ctx context.Context, a *kadm.Client) error {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 1, 5, -1) // messages 1, 5, ..., 17
		_, err := a.DeleteRecords(ctx, offsets)
		return err
	})
	if left, extent := readIDs(t, s, topic, day, time.Time{}); len(left) != 35 || !extent.Shortened {
		t.Errorf("%d records, %+v", len(left), extent)
	}
	if _, extent := readIDs(t, s, topic, day.Add(30*time.Minute), time.Time{}); extent.Shortened {
		t.Error("what was removed lies before the span")
	}
}

// A compacted topic is reported as such, whatever else its policy says.
func TestReadReportsACompactedTopic(t *testing.T) {
	c := newFake(t)
	s := newSink(t, c.Addr())
	for policy, want := range map[string]bool{"delete": false, "compact": true, "compact,delete": true} {
		topic := createTopic(t, c.Addr(), map[string]string{"cleanup.policy": policy})
		produce(t, c.Addr(), numbered(topic, 1, day))
		if _, extent := readIDs(t, s, topic, day, time.Time{}); extent.Compacted != want {
			t.Errorf("%s: %+v", policy, extent)
		}
	}
}

// An account that may write but not read gets an error that names the missing right.
func TestReadSaysWhichRightIsMissing(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("fetch: %w", kerr.TopicAuthorizationFailed), "grant READ and DESCRIBE"},
		{kerr.SaslAuthenticationFailed, "check the user, password and rights of sink.kafka.sasl"},
	} {
		if got := readFault(c.err).Error(); !strings.Contains(got, c.want) || strings.Contains(got, "WRITE") {
			t.Errorf("%v: %s", c.err, got)
		}
	}
}
