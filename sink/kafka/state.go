package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stateTopic is the topic of the entries of a transactional id. It has one writer, so that no other's transaction keeps its records from being
// read.
func stateTopic(name string) string { return "__" + name + "_state" }

// Coordinator is the side of the brokers: the epochs of the transactional ids, and the topic of the entries. The simulation has a model of it.
type Coordinator interface {
	// Check refuses brokers and a state topic that cannot keep the proof, with a *sink.NoProofError.
	Check(ctx context.Context) error

	// Open begins a new epoch of an id, from 0 below TransactionalIDs. What an earlier producer of the id had under way is ended when it returns, and none of its
	// requests that comes later has an effect. In the partitions of ends nothing of the id is open, and it ended there as ends says; Open replaces
	// Unsure by what it learns.
	Open(ctx context.Context, id int, ends Ends) (Producer, error)

	// Read returns committed entries in the order of their numbers: at least those behind Low of the newest. It waits until no transaction is
	// open in the state topic. A topic that lost entries is a *sink.NoProofError.
	Read(ctx context.Context) ([]ledger.Entry, error)
}

// Producer is one epoch of a transactional id.
type Producer interface {
	BeginTransaction() error
	TryProduce(ctx context.Context, r *kgo.Record, answered func(*kgo.Record, error))
	EndTransaction(ctx context.Context, commit kgo.TransactionEndTry) error
	// Failed reports that a connection was lost: the brokers may have left open what was decided before.
	Failed() bool
	Close()
}

// producer is the Producer of a cluster.
type producer struct {
	*kgo.Client
	failed atomic.Bool
	listed map[string]bool // topics whose partitions EndTransaction has seen
	first  []*kgo.Record   // those of the transaction whose topic is not listed
}

// BeginTransaction implements Producer.
func (p *producer) BeginTransaction() error {
	p.first = nil
	return p.Client.BeginTransaction()
}

// TryProduce implements Producer.
func (p *producer) TryProduce(ctx context.Context, r *kgo.Record, answered func(*kgo.Record, error)) {
	if !p.listed[r.Topic] {
		p.first = append(p.first, r)
	}
	p.Client.TryProduce(ctx, r, answered)
}

// EndTransaction implements Producer. The library ends what it finds in its list of partitions, and a topic's first messages may have their answers
// before the topic is in that list: then it would send nothing, report success, and leave the transaction open (seen with v1.22.2).
func (p *producer) EndTransaction(ctx context.Context, commit kgo.TransactionEndTry) error {
	for _, r := range p.first {
		for !p.listed[r.Topic] && r.Partition >= 0 { // it was sent, or was to be
			if leader, _, _ := p.PartitionLeader(r.Topic, r.Partition); leader >= 0 {
				p.listed[r.Topic] = true
			} else if !outbox.Wait(ctx, time.Millisecond, nil) {
				return context.Cause(ctx)
			}
		}
	}
	return p.Client.EndTransaction(ctx, commit)
}

// Failed implements Producer.
func (p *producer) Failed() bool { return p.failed.Load() }

// OnBrokerRead implements kgo.HookBrokerRead.
func (p *producer) OnBrokerRead(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	p.note(err)
}

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (p *producer) OnBrokerWrite(_ kgo.BrokerMetadata, _ int16, _ int, _, _ time.Duration, err error) {
	p.note(err)
}

func (p *producer) note(err error) {
	if err != nil {
		p.failed.Store(true)
	}
}

// brokers is the Coordinator of a cluster.
type brokers struct {
	*Sink
	name string // the transactional ids without their numbers
}

// Check implements Coordinator.
func (b *brokers) Check(ctx context.Context) error {
	if err := b.checkBroker(ctx); err != nil {
		return err
	}
	return b.checkTopic(ctx)
}

func (b *brokers) topic() string { return stateTopic(b.name) }

// checkBroker refuses brokers before 2.5, whose epochs cannot be renewed without a gap (KIP-360).
func (b *brokers) checkBroker(ctx context.Context) error {
	if enough, err := serves(ctx, b.current(), kmsg.InitProducerID, 3); err != nil || enough {
		return err
	}
	return &sink.NoProofError{Why: "sink.kafka.exactly_once needs brokers of Kafka 2.5 or later: upgrade them, or remove exactly_once"}
}

// serves reports whether brokers know a version of a request.
func serves(ctx context.Context, client *kgo.Client, key kmsg.Key, version int16) (bool, error) {
	versions, err := within(ctx, func() (*kmsg.ApiVersionsResponse, error) {
		return kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	})
	if err != nil {
		return false, fmt.Errorf("ask Kafka for its version: %w", err)
	}
	return slices.ContainsFunc(versions.ApiKeys, func(v kmsg.ApiVersionsResponseApiKey) bool { return v.ApiKey == int16(key) && v.MaxVersion >= version }), nil
}

// checkTopic refuses a state topic that could lose a record.
func (b *brokers) checkTopic(ctx context.Context) error {
	settings, err := b.Settings(ctx, []string{b.topic()})
	if err != nil {
		return err
	}
	s, exists := settings[b.topic()]
	switch {
	case !exists:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, does not exist or may not be read; "+
			"create it, and grant READ, WRITE and DESCRIBE on it:\n%s\nIf it existed before: rows that were published shortly before it was deleted, "+
			"and that their table does not show as SENT, are published again", b.topic(), b.createState())}
	case s.Err != nil: // the account may not DESCRIBE_CONFIGS: doctor says so
		return nil
	case !s.Compacted || s.Deletes:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, drops old records (cleanup.policy): "+
			"rows could be sent twice.\nkafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact",
			b.topic(), b.cfg.brokers[0], b.topic())}
	case s.MaxMessageBytes != 0 && s.MaxMessageBytes < ledger.LeastRecordBytes:
		return &sink.NoProofError{Why: fmt.Sprintf("the topic %s, in which sink.kafka.exactly_once keeps what was sent, takes only %d bytes in a record.\n"+
			"kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d",
			b.topic(), s.MaxMessageBytes, b.cfg.brokers[0], b.topic(), ledger.LeastRecordBytes)}
	}
	return nil
}

func (b *brokers) createState() string { return createState(b.cfg, b.topic()) }

// createState is the command that creates the state topic.
func createState(cfg config, topic string) string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 1 --replication-factor 3 --config cleanup.policy=compact "+
		"--config min.insync.replicas=2", cfg.brokers[0], topic)
}

// incomplete is the error of a state topic without entries that it should have.
func incomplete(cfg config, topic string) error {
	return &sink.NoProofError{Why: fmt.Sprintf("the topic %s has lost records: some of the newest transactions are missing, so it is not known which "+
		"rows were sent. Find out why (DeleteRecords, a retention, an unclean leader election). To continue, delete the topic and create it again: "+
		"rows that were published and that their table does not show as SENT are then published again.\n%s", topic, createState(cfg, topic))}
}

// transactionalID is one of a relay's.
func transactionalID(name string, id int) string { return name + "-" + strconv.Itoa(id) }

// Open implements Coordinator.
func (b *brokers) Open(ctx context.Context, id int, ends Ends) (Producer, error) {
	if may := b.cfg.limits.May; may != nil && !may() {
		return nil, sink.ErrMayNot
	}
	if err := b.mend(ctx, id, ends); err != nil {
		return nil, err
	}
	p := &producer{listed: map[string]bool{}}
	client, err := kgo.NewClient(append(b.producerOptions(&wire{}), kgo.WithHooks(p), kgo.TransactionalID(transactionalID(b.name, id)), kgo.TransactionTimeout(transactionTimeout),
		kgo.ConcurrentTransactionsBackoff(2*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("sink.kafka: %w", err)
	}
	p.Client = client
	_, err = within(ctx, func() (struct{}, error) {
		if _, _, err := client.ProducerID(ctx); err != nil {
			return struct{}{}, b.initFault(err)
		}
		if err := b.touch(ctx, p); err != nil {
			return struct{}{}, err
		}
		// After its first transaction the library may ask for another epoch (KIP-890, part 2). It must be here: later the epoch could be that of
		// a process that another one has followed.
		_, _, err := client.ProducerID(ctx)
		return struct{}{}, err
	})
	if err != nil {
		go client.Close() // it may wait for a connection that is being made
		return nil, err
	}
	return p, nil
}

func (b *brokers) initFault(err error) error {
	if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		return &sink.NoProofError{Why: fmt.Sprintf("the user of sink.kafka.sasl may not use the transactional ids that begin with %s:\nkafka-acls.sh --bootstrap-server %s --add "+
			"--allow-principal User:... --operation Write --operation Describe --resource-pattern-type prefixed --transactional-id %s", b.name, b.cfg.brokers[0], b.name)}
	}
	return fmt.Errorf("begin with the transactional id %s: %w", b.name, err)
}

// touch aborts a transaction with one record, so that the newest record of the state topic is one that compaction has not removed: a reader sees
// that it is at the end. It also proves that the topic takes records.
func (b *brokers) touch(ctx context.Context, client Producer) error {
	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	batch := newBatch([]*outbox.Message{{Topic: b.topic(), Partition: 0}}, nil)
	d := &batch.deliveries[0]
	d.record = kgo.Record{Topic: b.topic(), Key: []byte("touch"), Value: []byte{}, Context: d}
	answer := make(chan error, 1)
	client.TryProduce(d, &d.record, func(_ *kgo.Record, err error) { answer <- err })
	select {
	case err := <-answer:
		b.completion(d, err)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			return &sink.NoProofError{Why: fmt.Sprintf("the user of sink.kafka.sasl may not write to the topic %s: grant READ, WRITE and DESCRIBE on it", b.topic())}
		}
		if err != nil {
			return fmt.Errorf("write to topic %s: %w", b.topic(), err)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return fmt.Errorf("abort a transaction: %w", err)
	}
	return nil
}

// Read implements Coordinator.
func (b *brokers) Read(ctx context.Context) ([]ledger.Entry, error) {
	lines := &logger{log: b.log}
	defer lines.end()
	options := append(b.cfg.connection(nil), kgo.WithLogger(lines), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("sink.kafka: %w", err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	begin, err := b.offset(ctx, admin.ListStartOffsets)
	if err != nil {
		return nil, err
	}
	end, err := b.offset(ctx, admin.ListEndOffsets)
	if err != nil {
		return nil, err
	}
	// What was under way is ended, and its markers are written: nothing before the end can be open. A follower that leads now may lag.
	for stable := int64(0); stable < end; {
		if stable, err = b.offset(ctx, admin.ListCommittedOffsets); err != nil {
			return nil, err
		}
		if stable < end && !outbox.Wait(ctx, 20*time.Millisecond, nil) {
			return nil, fmt.Errorf("topic %s has an open transaction: %w", b.topic(), context.Cause(ctx))
		}
	}
	for window := int64(4 * ledger.Slots); ; window *= 8 {
		from := max(begin, end-window)
		entries, err := b.readFrom(ctx, client, from, end)
		if err != nil || ledger.Whole(entries) {
			return entries, err
		}
		if from == begin {
			if len(entries) == 0 && begin == 0 {
				return nil, nil
			}
			return nil, incomplete(b.cfg, b.topic())
		}
	}
}

func (b *brokers) offset(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (int64, error) {
	listed, err := ask(ctx, b.topic())
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the offsets of topic %s: %w", b.topic(), readFault(err))
	}
	at, is := listed.Lookup(b.topic(), 0)
	if !is {
		return 0, fmt.Errorf("topic %s has no partition 0", b.topic())
	}
	return at.Offset, nil
}

// readFrom returns the entries in a range of offsets, one of each number.
func (b *brokers) readFrom(ctx context.Context, client *kgo.Client, from, end int64) (entries []ledger.Entry, err error) {
	if from >= end {
		return nil, nil
	}
	newer := false
	err = readRanges(ctx, client, b.topic(), map[int32]*span{0: {from, end}}, func(r *kgo.Record) error {
		if e, ok := ledger.Decode(r.Value); ok {
			entries = append(entries, e)
		} else {
			newer = true
		}
		return nil
	})
	client.RemoveConsumePartitions(map[string][]int32{b.topic(): {0}})
	client.ResumeFetchPartitions(map[string][]int32{b.topic(): {0}})
	if newer && err == nil {
		return nil, &sink.NoProofError{Why: fmt.Sprintf("the topic %s has records that this version cannot read: another program writes into it, or a newer "+
			"version did; use that version, or another sink.kafka.transactional_id", b.topic())}
	}
	return entries, err
}
