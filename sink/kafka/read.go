package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readPatience is how long a read waits for a record while some are left.
const readPatience = 30 * time.Second

var _ sink.CommittedReader = (*Sink)(nil)

// Committed implements sink.CommittedReader: a broker gives consumers only what all in-sync replicas have (the high watermark).
func (s *Sink) Committed(context.Context, string) error { return nil }

// Read implements sink.Reader with its own client, which belongs to no consumer group and commits nothing. The account needs READ
// on the topic.
func (s *Sink) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (sink.Extent, error) {
	lines := &logger{log: s.log}
	defer lines.end()
	options := append(s.cfg.connection(nil), kgo.WithLogger(lines), kgo.KeepControlRecords(), kgo.FetchMaxBytes(16<<20))
	if s.committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return sink.Extent{}, fmt.Errorf("sink.kafka: %w", err)
	}
	defer client.Close()
	ranges, extent, err := findRanges(ctx, kadm.NewClient(client), topic, from, to, s.committed)
	if settings, unknown := s.Settings(ctx, []string{topic}); unknown == nil { // an account may have READ without DESCRIBE_CONFIGS
		extent.Compacted = settings[topic].Compacted
	}
	if err == nil {
		err = readRanges(ctx, client, topic, ranges, func(r *kgo.Record) error { return each(record(r)) })
	}
	return extent, err
}

// span is the part of a partition to read: offsets from next to below end.
type span struct{ next, end int64 }

// findRanges reads the offsets of the times. A partition without records to read is left out.
func findRanges(ctx context.Context, admin *kadm.Client, topic string, from, to time.Time, committed bool) (map[int32]*span, sink.Extent, error) {
	after := func(at time.Time) func(context.Context, ...string) (kadm.ListedOffsets, error) {
		return func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
			return admin.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...)
		}
	}
	asks := []func(context.Context, ...string) (kadm.ListedOffsets, error){admin.ListEndOffsets, admin.ListStartOffsets, after(from), admin.ListEndOffsets}
	if !to.IsZero() {
		asks[3] = after(to)
	}
	if committed {
		asks[0] = admin.ListCommittedOffsets
	}
	var extent sink.Extent
	var found [4]map[int32]kadm.ListedOffset // ends, oldest, begins, stops
	for i, ask := range asks {
		listed, err := ask(ctx, topic)
		if err = cmp.Or(err, listed.Error()); err != nil {
			return nil, extent, fmt.Errorf("ask for the offsets of topic %s: %w", topic, readFault(err))
		}
		found[i] = listed[topic]
	}
	ranges := map[int32]*span{}
	for partition, begin := range found[2] {
		if oldest := found[1][partition].Offset; oldest > 0 && begin.Offset == oldest {
			extent.Shortened = true
		}
		if end := min(found[0][partition].Offset, found[3][partition].Offset); begin.Offset < end {
			ranges[partition] = &span{begin.Offset, end}
		}
	}
	return ranges, extent, nil
}

// readRanges reads until each range is at its end. Control records are no messages, but some ranges end with them.
func readRanges(ctx context.Context, client *kgo.Client, topic string, ranges map[int32]*span, each func(*kgo.Record) error) error {
	if len(ranges) == 0 {
		return nil
	}
	starts := map[int32]kgo.Offset{}
	for partition, r := range ranges {
		starts[partition] = kgo.NewOffset().At(r.next)
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts})
	for len(ranges) > 0 {
		fetches, err := poll(ctx, client, topic)
		if err != nil {
			return err
		}
		for r := range fetches.RecordsAll() {
			open := ranges[r.Partition]
			if open == nil {
				continue
			}
			if r.Offset < open.end && !r.Attrs.IsControl() {
				if err := each(r); err != nil {
					return err
				}
			}
			if open.next = r.Offset + 1; open.next >= open.end {
				delete(ranges, r.Partition)
				client.PauseFetchPartitions(map[string][]int32{topic: {r.Partition}})
			}
		}
	}
	return nil
}

// poll waits a bounded time for records: the library itself retries temporary errors without end.
func poll(ctx context.Context, client *kgo.Client, topic string) (kgo.Fetches, error) {
	patient, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	fetches := client.PollFetches(patient)
	switch err := fetches.Err(); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case patient.Err() != nil && fetches.Empty():
		return nil, fmt.Errorf("read topic %s: no record came within %s though there are some; are all its partitions' leaders there?", topic, readPatience)
	case err != nil:
		return nil, fmt.Errorf("read topic %s: %w", topic, readFault(err))
	}
	return fetches, nil
}

// readFault says what to do about an error. A reader needs other rights than a producer.
func readFault(err error) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("%w; grant READ and DESCRIBE on the topic to the user of sink.kafka.sasl", err)
	}
	_, reason := classify(err)
	return errors.New(reason)
}

func record(r *kgo.Record) sink.Record {
	found := sink.Record{
		Body: r.Value, At: r.Timestamp, Transactional: r.Attrs.IsTransactional(),
		Position: "partition " + strconv.Itoa(int(r.Partition)) + " offset " + strconv.FormatInt(r.Offset, 10),
	}
	for i := range r.Headers {
		if r.Headers[i].Key == HeaderMessageID {
			found.MessageID = string(r.Headers[i].Value)
		}
	}
	return found
}
