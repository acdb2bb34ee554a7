package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/zap"
)

// Place is a partition.
type Place struct {
	Topic     string
	Partition int32
}

// Fate is how a transaction ended, or was to end.
type Fate uint8

const (
	Unsure    Fate = iota // only the coordinator can say
	Committed             // its messages are to be visible
	Aborted               // they are never to be
)

// Ends says how the last transaction of a transactional id in each partition ended.
type Ends map[Place]Fate

// mend ends once more what Kafka has left open of an id. A coordinator that has decided writes the end into each partition, and takes a partition that
// has no leader for deleted: after a kill of the only broker a committed transaction may stay open (seen with 4.3.1; the server's log says
// "Couldn't find leader endpoint"). Then readers of committed records wait there, and the end of the id's next transaction in that partition would be the
// end of this one too, whichever it is. A partition that has no leader now is left as it is.
//
// What is not known any more is aborted: the first transaction of an epoch does that in the state topic anyway.
//
// Only requests of before KIP-890 can do it: they name partitions without sending messages to them.
func (b *brokers) mend(ctx context.Context, id int, ends Ends) error {
	lines := &logger{log: b.log}
	defer lines.end()
	client, err := kgo.NewClient(append(b.cfg.connection(&wire{}), kgo.WithLogger(lines), kgo.MaxVersions(kversion.V3_0_0()))...)
	if err != nil {
		return fmt.Errorf("sink.kafka: %w", err)
	}
	defer func() { go client.Close() }() // it may wait for a connection that is being made
	open, err := openIn(ctx, kadm.NewClient(client), ends)
	if err != nil || len(open) == 0 {
		return err
	}
	f := &fencing{Client: client, id: transactionalID(b.name, id)}
	if f.asks, err = serves(ctx, client, kmsg.DescribeTransactions, 0); err != nil {
		return err
	}
	fate, err := f.fence(ctx)
	for at, known := range ends { // also of those that are not seen to be open: the coordinator says it only once
		if known == Unsure && fate != Unsure {
			ends[at] = fate
		}
	}
	if err != nil {
		return b.initFault(err)
	}
	for _, fate := range []Fate{Committed, Aborted} {
		var list []Place
		for _, at := range open {
			if ends[at] == fate || ends[at] == Unsure && fate == Aborted {
				list = append(list, at)
			}
		}
		if len(list) == 0 {
			continue
		}
		if err := f.end(ctx, list, fate == Committed); err != nil {
			return fmt.Errorf("end transactions of %s that Kafka has left open: %w", f.id, err)
		}
		b.log.Info("the end of a transaction was written again into partitions that have one open", zap.String("transactional_id", f.id), zap.Int("partitions", len(list)),
			zap.Bool("committed", fate == Committed))
	}
	return nil
}

// openIn returns the partitions in which some transaction is open.
func openIn(ctx context.Context, admin *kadm.Client, ends Ends) (list []Place, err error) {
	topics := map[string]bool{}
	for at := range ends {
		topics[at.Topic] = true
	}
	var names []string
	for topic := range topics {
		names = append(names, topic)
	}
	if len(names) == 0 {
		return nil, nil
	}
	all, err := listed(ctx, admin.ListEndOffsets, names)
	if err != nil {
		return nil, err
	}
	stable, err := listed(ctx, admin.ListCommittedOffsets, names)
	if err != nil {
		return nil, err
	}
	for at := range ends {
		end, is := all.Lookup(at.Topic, at.Partition)
		upTo, known := stable.Lookup(at.Topic, at.Partition)
		if is && known && end.Err == nil && upTo.Err == nil && upTo.Offset < end.Offset {
			list = append(list, at)
		}
	}
	return list, nil
}

// listed asks all brokers, and is content with the answers of some.
func listed(ctx context.Context, ask func(context.Context, ...string) (kadm.ListedOffsets, error), topics []string) (kadm.ListedOffsets, error) {
	offsets, err := within(ctx, func() (kadm.ListedOffsets, error) { return ask(ctx, topics...) })
	if err != nil && len(offsets) == 0 {
		return nil, fmt.Errorf("ask for the offsets of %s: %w", strings.Join(topics, ", "), err)
	}
	return offsets, nil
}

// fencing is a producer epoch that sends no messages.
type fencing struct {
	*kgo.Client
	id       string // the transactional id
	asks     bool   // the coordinator can be asked for the state of the id: brokers of 3.0 and later
	producer int64
	epoch    int16
}

// pause is between two requests while the coordinator is busy.
const pause = 5 * time.Millisecond

// fence begins an epoch, and says how the last transaction ended that a producer of the id has begun; Unsure: it is not known any more, because an
// epoch has begun since.
func (f *fencing) fence(ctx context.Context) (last Fate, err error) {
	for {
		switch state, err := f.state(ctx); {
		case err != nil:
			return last, err
		case state == "PrepareCommit", state == "CompleteCommit":
			last = Committed
		case state == "Ongoing", state == "PrepareAbort", state == "CompleteAbort", state == "PrepareEpochFence": // the epoch ends what is ongoing
			last = Aborted
		}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &f.id, int32(transactionTimeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := within(ctx, func() (*kmsg.InitProducerIDResponse, error) { return req.RequestWith(ctx, f.Client) })
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err == nil:
			f.producer, f.epoch = resp.ProducerID, resp.ProducerEpoch
			return last, nil
		case !busy(err):
			return last, err
		case !outbox.Wait(ctx, pause, nil):
			return last, err
		}
	}
}

// busy reports an answer of a coordinator that is to be asked again.
func busy(err error) bool {
	return kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions)
}

// state is what the coordinator says of the id; empty when it has none, or may not say.
func (f *fencing) state(ctx context.Context) (string, error) {
	if !f.asks {
		return "", nil
	}
	for {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{f.id}
		resp, err := within(ctx, func() (*kmsg.DescribeTransactionsResponse, error) { return req.RequestWith(ctx, f.Client) })
		if err != nil {
			return "", err
		}
		if len(resp.TransactionStates) == 0 {
			return "", nil
		}
		s := resp.TransactionStates[0]
		switch err := kerr.ErrorForCode(s.ErrorCode); {
		case err == nil:
			return s.State, nil
		case !busy(err):
			return "", nil
		case !outbox.Wait(ctx, pause, nil):
			return "", err
		}
	}
}

// end ends a transaction without messages in partitions.
func (f *fencing) end(ctx context.Context, list []Place, commit bool) error {
	for len(list) > 0 {
		again, err := f.add(ctx, list)
		if err != nil {
			return err
		}
		if again == nil {
			break
		}
		if list = again; !outbox.Wait(ctx, pause, nil) {
			return context.Cause(ctx)
		}
	}
	if len(list) == 0 {
		return nil
	}
	for {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = f.id, f.producer, f.epoch, commit
		resp, err := within(ctx, func() (*kmsg.EndTxnResponse, error) { return req.RequestWith(ctx, f.Client) })
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil || !busy(err) || !outbox.Wait(ctx, pause, nil) {
			return err
		}
	}
}

// add adds partitions to the transaction. Those that it returns are to be tried again; nil: all are in it.
func (f *fencing) add(ctx context.Context, list []Place) (again []Place, err error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = f.id, f.producer, f.epoch
	topics := map[string][]int32{}
	for _, at := range list {
		topics[at.Topic] = append(topics[at.Topic], at.Partition)
	}
	for topic, partitions := range topics {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	resp, err := within(ctx, func() (*kmsg.AddPartitionsToTxnResponse, error) { return req.RequestWith(ctx, f.Client) })
	if err != nil {
		return nil, err
	}
	failed := false
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.TopicAuthorizationFailed): // this id cannot end it there
				failed = true
			case err == nil, errors.Is(err, kerr.OperationNotAttempted), busy(err):
				failed = failed || err != nil
				again = append(again, Place{t.Topic, p.Partition})
			default:
				return nil, err
			}
		}
	}
	if !failed {
		return nil, nil
	}
	if again == nil {
		again = []Place{}
	}
	return again, nil
}
