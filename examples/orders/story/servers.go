package story

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/consumers"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// broker is the broker of the chain.
type broker struct {
	flags []string // of the shop's parts
	sink  string   // of the relay's configuration
	kill  func() error
	start func(context.Context) error
	close func() error
}

// servers are the database, Redis and the broker.
type servers struct {
	database *testkit.Database
	db       *sql.DB
	redis    *testkit.Redis
	client   *redis.Client
	broker   broker
	closing  []func() error // of what was started, in order
}

const (
	schema        = "shop"
	relayUser     = "canal_outbox"
	relayPassword = "example-only"
	products      = 5
	pieces        = 100_000
)

// topics by their number of partitions.
var topics = map[string]int{shop.Topic: 4, shop.TimeoutTopic: 4, consumers.RetryTopic: 1, consumers.DeadTopic: 1}

func (s *servers) start(ctx context.Context, opts Options) (err error) {
	if s.database, err = testkit.StartDatabase(ctx, testkit.DatabaseOptions{Flavor: testkit.Flavor(opts.Database)}); err != nil {
		return err
	}
	s.closing = append(s.closing, s.database.Close)
	if s.redis, err = testkit.StartRedis(ctx); err != nil {
		return err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	s.closing = append(s.closing, s.redis.Close, s.client.Close)
	if s.broker, err = startBroker(ctx, opts.Broker); s.broker.close != nil {
		s.closing = append(s.closing, s.broker.close)
	}
	if err != nil {
		return err
	}
	if _, err = s.database.Root().ExecContext(ctx, "CREATE DATABASE "+schema); err != nil {
		return err
	}
	if s.db, err = s.database.Open("root", "", schema); err != nil {
		return err
	}
	s.closing = append(s.closing, s.db.Close)
	if err := shop.Prepare(ctx, s.db, products, pieces); err != nil {
		return err
	}
	return s.database.CreateRelayUser(ctx, relayUser, relayPassword, "shop.t_local_message")
}

func startBroker(ctx context.Context, kind string) (broker, error) {
	switch kind {
	case "embedded":
		return embedded()
	case "kafka":
		k, err := testkit.StartKafka(ctx, testkit.KafkaOptions{})
		if err != nil {
			return broker{}, err
		}
		b := onKafka(k.Addr())
		b.kill, b.start, b.close = k.Kill, k.Start, k.Close
		return b, kafkaTopics(ctx, k.Addr())
	case "rocketmq":
		r, err := testkit.StartRocketMQ(ctx, testkit.RocketMQOptions{Topics: topics})
		if err != nil {
			return broker{}, err
		}
		return broker{
			flags: []string{"-rocketmq", r.NameServer()}, sink: "{" + relay.RocketMQSink(r.NameServer()) + "}",
			kill: r.Broker.Kill, start: r.Broker.Start, close: r.Close,
		}, nil
	}
	return broker{}, fmt.Errorf("broker %q: use kafka or rocketmq", kind)
}

func onKafka(addr string) broker {
	return broker{flags: []string{"-kafka", addr}, sink: "{" + relay.KafkaSink(addr) + "}"}
}

func kafkaTopics(ctx context.Context, addr string) (err error) {
	for name, partitions := range topics {
		err = errors.Join(err, testkit.CreateKafkaTopic(ctx, addr, name, partitions, nil))
	}
	return err
}

// embedded is a Kafka in this process, for the shortened run.
func embedded() (broker, error) {
	cluster, err := fakekafka.Start(1, topics)
	if err != nil {
		return broker{}, err
	}
	b := onKafka(cluster.Addr())
	b.kill = func() error { cluster.Stop(); return nil }
	b.start, b.close = func(context.Context) error { return cluster.Start() }, cluster.Shut
	return b, nil
}

func (s *servers) close() (err error) {
	for _, end := range slices.Backward(s.closing) {
		err = errors.Join(err, end())
	}
	return err
}
