package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// stateTopic is the topic of the entries of a transactional id. It has one writer, so that no other's transaction keeps its records from being
// read.
func stateTopic(name string) string { return "__" + name + "_state" }

// Recover implements sink.Prover.
func (x *Exactly) Recover(ctx context.Context, tables []string) ([]outbox.Identity, error) {
	x.tables = tables
	if err := x.checkBroker(ctx); err != nil {
		return nil, err
	}
	if err := x.checkState(ctx); err != nil {
		return nil, err
	}
	for i := range x.clients {
		if err := x.open(ctx, i); err != nil {
			return nil, err
		}
	}
	entries, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(entries); n > 0 && len(entries[n-1].tables) > 0 && !slices.ContainsFunc(entries[n-1].tables, func(t string) bool { return slices.Contains(tables, t) }) {
		x.dropAll()
		return nil, &sink.NoProofError{Why: fmt.Sprintf("the transactional id %s is used by a relay of the tables %s, and this one publishes %s: give each "+
			"relay its own sink.kafka.transactional_id", x.name, strings.Join(entries[n-1].tables, ", "), strings.Join(tables, ", "))}
	}
	rows := x.ledger.restore(entries)
	x.mu.Lock()
	x.ready = true
	x.mu.Unlock()
	return rows, nil
}

// checkBroker refuses brokers before 2.5, whose epochs cannot be renewed without a gap (KIP-360).
func (x *Exactly) checkBroker(ctx context.Context) error {
	client := x.current()
	versions, err := within(ctx, func() (*kmsg.ApiVersionsResponse, error) {
		return kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	})
	if err != nil {
		return fmt.Errorf("ask Kafka for its version: %w", err)
	}
	for _, v := range versions.ApiKeys {
		if v.ApiKey == int16(kmsg.InitProducerID) && v.MaxVersion >= 3 {
			return nil
		}
	}
	return &sink.NoProofError{Why: "sink.kafka.exactly_once needs brokers of Kafka 2.5 or later: upgrade them, or remove exactly_once"}
}

// checkState refuses a state topic that could lose a record.
func (x *Exactly) checkState(ctx context.Context) error {
	settings, err := x.Settings(ctx, []string{x.topic})
	if err != nil {
		return err
	}
	s, exists := settings[x.topic]
	switch {
	case !exists:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, does not exist or may not be read; "+
			"create it, and grant READ, WRITE and DESCRIBE on it:\n%s\nIf it existed before: rows that were published shortly before it was deleted, "+
			"and that their table does not show as SENT, are published again", x.topic, x.createState())}
	case s.Err != nil: // the account may not DESCRIBE_CONFIGS: doctor says so
		return nil
	case !s.Compacted || s.Deletes:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, drops old records (cleanup.policy): "+
			"rows could be sent twice.\nkafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact",
			x.topic, x.cfg.brokers[0], x.topic)}
	case s.MaxMessageBytes != 0 && s.MaxMessageBytes < leastStateBytes:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, takes only %d bytes in a record.\n"+
			"kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d",
			x.topic, s.MaxMessageBytes, x.cfg.brokers[0], x.topic, leastStateBytes)}
	}
	return nil
}

func (x *Exactly) createState() string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 1 --replication-factor 3 --config cleanup.policy=compact "+
		"--config min.insync.replicas=2", x.cfg.brokers[0], x.topic)
}

func (x *Exactly) incomplete() error {
	return &sink.NoProofError{Why: fmt.Sprintf("the topic %s has lost records: some of the newest transactions are missing, so it is not known which "+
		"rows were sent. Find out why (DeleteRecords, a retention, an unclean leader election). To go on, delete the topic and create it again: "+
		"rows that were published and that their table does not show as SENT are then published again.\n%s", x.topic, x.createState())}
}

// producer returns the client for a transaction.
func (x *Exactly) producer(e *entry) (*kgo.Client, error) {
	if fenced := x.fenced.Load(); fenced != nil {
		return nil, *fenced
	}
	if client := *x.client(e); client != nil {
		return client, nil
	}
	if err := x.reopen(&entry{number: e.number}); err != nil {
		return nil, err
	}
	return *x.client(e), nil
}

// reopen makes a new client, whose epoch ends whatever an old one has under way, and looks at the entries. errFound: the one that is looked for
// is there. If another process has written an entry since, this one sends no more: it does not know what the other has sent.
func (x *Exactly) reopen(e *entry) error {
	ctx, cancel := context.WithTimeout(x.ctx, reopenLimit)
	defer cancel()
	if err := x.open(ctx, int(e.number%uint64(len(x.clients)))); err != nil {
		return err
	}
	entries, err := x.read(ctx)
	if err != nil {
		x.drop(e)
		return err
	}
	if len(entries) == 0 && e.number == 1 {
		return nil
	}
	if len(entries) == 0 {
		x.drop(e)
		return x.incomplete()
	}
	switch newest := entries[len(entries)-1]; {
	case newest.process == x.process && newest.number == e.number && e.process != "":
		return errFound
	case newest.number+1 == e.number:
		return nil
	default:
		x.drop(e)
		err := fmt.Errorf("another process has published with the transactional id %s since this one began: end it, or give each its own "+
			"sink.kafka.transactional_id, and restart this one", x.name)
		x.fenced.Store(&err)
		x.log.Error("nothing is sent any more", zap.Error(err))
		return err
	}
}

// id is the transactional id of a client.
func (x *Exactly) id(i int) string { return x.name + "-" + strconv.Itoa(i) }

// open makes a client and ends what an earlier one with its id had under way.
func (x *Exactly) open(ctx context.Context, i int) error {
	if may := x.cfg.limits.May; may != nil && !may() {
		return sink.ErrMayNot
	}
	closeClient(&x.clients[i])
	client, err := kgo.NewClient(append(x.producerOptions(&wire{}), kgo.TransactionalID(x.id(i)), kgo.TransactionTimeout(transactionTimeout),
		kgo.ConcurrentTransactionsBackoff(2*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return fmt.Errorf("sink.kafka: %w", err)
	}
	_, err = within(ctx, func() (struct{}, error) {
		if _, _, err := client.ProducerID(ctx); err != nil {
			return struct{}{}, x.initFault(err)
		}
		if err := x.touch(ctx, client); err != nil {
			return struct{}{}, err
		}
		// After its first transaction the library may ask for another epoch (KIP-890, part 2). It must be here: later the epoch could be that of
		// a process that another one has followed.
		_, _, err := client.ProducerID(ctx)
		return struct{}{}, err
	})
	if err != nil {
		closeClient(&client)
		return err
	}
	x.clients[i] = client
	return nil
}

func (x *Exactly) initFault(err error) error {
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return &sink.NoProofError{Why: fmt.Sprintf("the user of sink.kafka.sasl may not use the transactional ids that begin with %s:\nkafka-acls.sh --bootstrap-server %s --add "+
			"--allow-principal User:... --operation Write --operation Describe --resource-pattern-type prefixed --transactional-id %s", x.name, x.cfg.brokers[0], x.name)}
	}
	return fmt.Errorf("begin with the transactional id %s: %w", x.name, err)
}

// touch aborts a transaction with one record, so that the newest record of the state topic is one that compaction has not removed: a reader sees
// that it is at the end. It also proves that the topic takes records.
func (x *Exactly) touch(ctx context.Context, client *kgo.Client) error {
	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	batch := newBatch([]*outbox.Message{{Topic: x.topic, Partition: 0}}, nil)
	d := &batch.deliveries[0]
	d.record = kgo.Record{Topic: x.topic, Key: []byte("touch"), Value: []byte{}, Context: d}
	answer := make(chan error, 1)
	client.TryProduce(d, &d.record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		x.completion(d, err)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			return &sink.NoProofError{Why: fmt.Sprintf("the user of sink.kafka.sasl may not write to the topic %s: grant READ, WRITE and DESCRIBE on it", x.topic)}
		}
		if err != nil {
			return fmt.Errorf("write to topic %s: %w", x.topic, err)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return fmt.Errorf("abort a transaction: %w", err)
	}
	return nil
}

// read returns the newest entries: at least those behind the low of the newest, in the order of their numbers.
func (x *Exactly) read(ctx context.Context) ([]entry, error) {
	lines := &logger{log: x.log}
	defer lines.end()
	options := append(x.cfg.connection(nil), kgo.WithLogger(lines), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("sink.kafka: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	begin, err := x.offset(ctx, admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	end, err := x.offset(ctx, admin.ListEndOffsets)
	if err != nil {
		return nil, err
	}
	// What was under way is ended, and its markers are written: nothing before the end can be open. A follower that leads now may lag.
	for stable := int64(0); stable < end; {
		if stable, err = x.offset(ctx, admin.ListCommittedOffsets); err != nil {
			return nil, err
		}
		if stable < end && !outbox.Wait(ctx, 20*time.Millisecond, nil) {
			return nil, fmt.Errorf("topic %s has an open transaction: %w", x.topic, context.Cause(ctx))
		}
	}
	for window := int64(4 * ledgerSlots); ; window *= 8 {
		from := max(begin, end-window)
		entries, err := x.readFrom(ctx, client, from, end)
		if err != nil || whole(entries) {
			return entries, err
		}
		if from == begin {
			if len(entries) == 0 && begin == 0 {
				return nil, nil
			}
			return nil, x.incomplete()
		}
	}
}

// whole reports whether there is a newest entry, and all behind its low.
func whole(entries []entry) bool {
	if len(entries) == 0 {
		return false
	}
	newest := entries[len(entries)-1]
	behind := 0
	for i := range entries {
		if entries[i].number > newest.low {
			behind++
		}
	}
	return behind == int(newest.number-newest.low)
}

func (x *Exactly) offset(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (int64, error) {
	listed, err := ask(ctx, x.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the offsets of topic %s: %w", x.topic, readFault(err))
	}
	at, is := listed.Lookup(x.topic, 0)
	if !is {
		return 0, fmt.Errorf("topic %s has no partition 0", x.topic)
	}
	return at.Offset, nil
}

// readFrom returns the entries in a range of offsets, one of each number.
func (x *Exactly) readFrom(ctx context.Context, client *kgo.Client, from, end int64) (entries []entry, err error) {
	if from >= end {
		return nil, nil
	}
	newer := false
	err = readRanges(ctx, client, x.topic, map[int32]*span{0: {from, end}}, func(r *kgo.Record) error {
		if e, ok := decodeEntry(r.Value); ok {
			entries = append(entries, e)
		} else {
			newer = true
		}
		return nil
	})
	client.RemoveConsumePartitions(map[string][]int32{x.topic: {0}})
	client.ResumeFetchPartitions(map[string][]int32{x.topic: {0}})
	if newer && err == nil {
		return nil, &sink.NoProofError{Why: fmt.Sprintf("the topic %s has records that this version cannot read: another program writes into it, or a newer "+
			"version did; use that version, or another sink.kafka.transactional_id", x.topic)}
	}
	return entries, err
}
