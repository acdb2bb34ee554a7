// Package kafka publishes to Apache Kafka (2.1 and later) with an idempotent producer.
//
// Guarantee: that of sink.Sink. In addition: during an outage the sink keeps and retries messages, without loss and without
// duplicates, as long as the process lives. A message is never sent again before the client library has reported its result,
// however long that takes, so the caller owns the deadline after which it treats the broker as away. If a record batch is
// refused, its messages are sent again one by one, so that only the faulty one is refused.
//
// A Sink owns one goroutine that reports results and one that sends messages one by one, in addition to those of the client
// library; all end in Close. A request to brokers that cannot be dialled leaves one goroutine until the library fails it, after
// ten seconds.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// errClosed is why a message has no answer that Close did not wait for.
var errClosed = errors.New("the sink was closed before Kafka answered")

// Sink is a sink.Sink for one Kafka cluster.
type Sink struct {
	cfg     config
	log     *zap.Logger
	library *logger
	metrics *metrics
	options []kgo.Opt
	promise func(*kgo.Record, error) // one function value for all records

	life   sync.RWMutex // read-held while something is passed to the client
	client *kgo.Client
	closed bool

	health     *sink.Health // of the partitions
	wire       *wire
	unanswered *unanswered
	results    *results
	isolation  *isolation
	committed  bool // Read returns records of committed transactions alone; constant
}

var _ sink.Sink = (*Sink)(nil)

// open opens no connection.
func open(cfg config, log *zap.Logger, reg prometheus.Registerer) (*Sink, error) {
	w := &wire{}
	s := &Sink{cfg: cfg, log: log, wire: w, library: &logger{log: log}, health: sink.NewHealth(cfg.limits.Messages), unanswered: &unanswered{}, results: newResults(), isolation: newIsolation()}
	s.promise = s.answered
	var err error
	if s.metrics, err = newMetrics(reg); err != nil {
		return nil, fmt.Errorf("sink.kafka: register metrics: %w", err)
	}
	s.options = s.producerOptions(w)
	if s.client, err = kgo.NewClient(s.options...); err != nil {
		return nil, fmt.Errorf("sink.kafka: %w", err)
	}
	go s.results.run()
	go s.isolation.run(s)
	return s, nil
}

func (s *Sink) producerOptions(w *wire) []kgo.Opt {
	return append(s.cfg.options(w), kgo.WithLogger(s.library), kgo.WithHooks(s.metrics, s.unanswered),
		kgo.ProducerOnDataLossDetected(s.dataLoss), kgo.RecordPartitioner(newPartitioner(s.log, s.health)))
}

// Send implements sink.Sink.
func (s *Sink) Send(messages []*outbox.Message, done func([]sink.Result)) {
	s.life.RLock()
	defer s.life.RUnlock()
	for d := range s.accepted(messages, done) {
		if !s.isolation.behind(d) { // others of its topic are being sent one by one: it stays behind them
			s.client.TryProduce(d, &d.record, s.promise)
		}
	}
}

// accepted begins a Send and yields the messages that a broker may take; the others have their result. Callers read-hold life.
func (s *Sink) accepted(messages []*outbox.Message, done func([]sink.Result)) iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		if len(messages) == 0 {
			return
		}
		if s.closed {
			go done(sink.Results(messages, sink.Closed)) // the caller may hold a lock that done needs
			return
		}
		b := newBatch(messages, done)
		b.number = s.wire.sends.Add(1) // before the client has the first of them
		s.results.add(b)
		for i := range b.deliveries {
			d := &b.deliveries[i]
			if reason := s.refusal(d); reason != "" {
				s.results.finish(d, outbox.Outcome{Class: outbox.ClassPermanent, Reason: reason})
			} else if !yield(d) {
				return
			}
		}
	}
}

// answered is the promise of every record of the main client: it reports the result, or isolates the delivery when the result is
// not final.
func (s *Sink) answered(r *kgo.Record, err error) {
	d := r.Context.(*delivery)
	o := s.completion(d, err)
	if again := s.again(d, o.Class, err); again != 0 {
		if s.isolation.add(d, again) {
			return
		}
		o = s.completion(d, errClosed)
	}
	s.results.finish(d, o)
}

// completion returns the outcome of a record with its scope.
func (s *Sink) completion(d *delivery, err error) outbox.Outcome {
	o := outcome(d, err)
	if o.Class == outbox.ClassUnknown && s.wire.never(d.batch.number) {
		o = outbox.Outcome{Class: outbox.ClassOutage, Reason: "the sink was closed before the message was sent"}
	}
	o.Scope = o.Class.Scope()
	if o.Class == outbox.ClassUnknown && errors.As(err, new(*kerr.Error)) { // of the partition's leader
		o.Scope = outbox.ScopePartition
	}
	if s.alone(d, o.Class, time.Now()) {
		o.Scope = outbox.ScopePartition
	}
	return o
}

// alone ends the count of a message at its partition, and reports whether its failure concerns that partition only.
func (s *Sink) alone(d *delivery, class outbox.Class, now time.Time) bool {
	if d.partition == nil {
		return d.away && s.health.Working(now)
	}
	partition := d.partition
	d.partition = nil
	return partition.Leave(class, now)
}

func outcome(d *delivery, err error) (o outbox.Outcome) {
	switch {
	case err == nil:
		return o
	case d.away: // our own partitioner's refusals
		return outbox.Outcome{Class: outbox.ClassOutage, Reason: "Kafka: the partition of topic " + d.message.Topic + " for this key accepts no messages while others do: check its leader"}
	case d.partitions != 0:
		return outbox.Outcome{
			Class:  outbox.ClassRefused,
			Reason: fmt.Sprintf("topic %s has no partition %d, only %d", d.message.Topic, d.message.Partition, d.partitions),
		}
	}
	o.Class, o.Reason = classify(err)
	return o
}

// Probe implements sink.Sink. It requests the cluster's metadata from one broker after the other. That proves little while every
// broker leaves produce requests unanswered.
func (s *Sink) Probe(ctx context.Context) error {
	client := s.current()
	if err := s.ping(ctx, client); err != nil {
		return err
	}
	if s.results.left() == 0 {
		s.unanswered.clear()
		return nil
	}
	return s.unansweredByAll(ctx, client)
}

// Reachable implements sink.CommittedReader.
func (s *Sink) Reachable(ctx context.Context) error { return s.ping(ctx, s.current()) }

func (s *Sink) ping(ctx context.Context, client *kgo.Client) error {
	if _, err := within(ctx, func() (struct{}, error) { return struct{}{}, client.Ping(ctx) }); err != nil {
		return fmt.Errorf("no Kafka broker of %s answers: %w%s", strings.Join(s.cfg.brokers, ", "), err, unreached(err))
	}
	return nil
}

// unreached returns what to check when no broker can be reached; "" when the error is clear.
func unreached(err error) string {
	_, advice := classOf(err)
	var dial *net.OpError
	switch {
	case advice != "":
		return "; " + advice
	case errors.As(err, &dial) && dial.Op == "dial" && !dial.Timeout():
		return ""
	}
	// A listener of another kind lets the client wait or closes the connection without a message.
	return "; check sink.kafka.brokers, and sink.kafka.tls and sink.kafka.sasl against the broker's listener"
}

// unansweredByAll returns nil when some broker owes no answer to a produce request.
func (s *Sink) unansweredByAll(ctx context.Context, client *kgo.Client) error {
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{} // none: without a list it would be all
	known, err := within(ctx, func() (*kmsg.MetadataResponse, error) { return ask.RequestWith(ctx, client) })
	if err != nil {
		return fmt.Errorf("ask Kafka for its brokers: %w", err)
	}
	var longest time.Duration
	var silent kmsg.MetadataResponseBroker
	for _, b := range known.Brokers {
		wait, overdue := s.unanswered.overdue(b.NodeID, sink.Silence)
		if !overdue {
			return nil
		}
		if wait > longest {
			longest, silent = wait, b
		}
	}
	if longest == 0 {
		return nil
	}
	return fmt.Errorf("the Kafka cluster answers questions but no produce request: broker %s:%d has owed an answer to one for %s",
		silent.Host, silent.Port, longest.Round(time.Second))
}

func (s *Sink) current() *kgo.Client {
	s.life.RLock()
	defer s.life.RUnlock()
	return s.client
}

func (s *Sink) dataLoss(topic string, partition int32) {
	s.metrics.dataLoss.Inc()
	s.log.Warn("Kafka has lost messages of this partition that it had acknowledged; check unclean leader election and "+
		"the broker's disks", zap.String("topic", topic), zap.Int32("partition", partition))
}

// Close implements sink.Sink. It takes at most times.close longer than the context lasts. Its error gives the number of messages
// without an answer.
//
// Order: no new messages; wait for answers; write no more; close the clients, which answer what they hold; answer the rest; end the
// hand-over, so that done is not called after the return. Flush and AbortBufferedRecords of the library have no part in
// it: with no linger there is nothing to flush, and an abort would wait for the answers that do not come.
func (s *Sink) Close(ctx context.Context) error {
	s.life.Lock()
	s.closed = true
	s.life.Unlock()
	left := s.drain(ctx.Done())
	s.wire.cut.Store(true)
	limit := make(chan struct{})
	timer := time.AfterFunc(s.cfg.times.close, func() { close(limit) })
	defer timer.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		close(s.isolation.stop)
		s.client.Close()
		<-s.isolation.stopped
	}()
	select {
	case <-ended:
		s.drain(limit) // the client reports on its own goroutine
	case <-limit:
	}
	s.results.finishAll(func(d *delivery) outbox.Outcome { return s.completion(d, errClosed) })
	close(s.results.stop)
	<-s.results.stopped
	s.library.end()
	if left > 0 {
		return fmt.Errorf("close Kafka sink: %d messages had no answer in time", left)
	}
	return nil
}

// drain waits until everything has been reported, or end is closed; it returns the number of messages left.
func (s *Sink) drain(end <-chan struct{}) int {
	for {
		left := s.results.left()
		if left == 0 {
			return 0
		}
		select {
		case <-s.results.drained:
		case <-end:
			return left
		}
	}
}
