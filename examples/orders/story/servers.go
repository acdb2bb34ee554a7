package story

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/examples/orders/consumers"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
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
	if s.redis, err = testkit.StartRedis(ctx); err != nil {
		return err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	if s.broker, err = startBroker(ctx, opts.Broker); err != nil {
		return err
	}
	if _, err = s.database.Root().ExecContext(ctx, "CREATE DATABASE "+schema); err != nil {
		return err
	}
	if s.db, err = s.database.Open("root", "", schema); err != nil {
		return err
	}
	if err := shop.Prepare(ctx, s.db, products, pieces); err != nil {
		return err
	}
	grants := []string{"REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON shop.t_local_message"}
	if s.database.Flavor == testkit.MySQL {
		grants = append(grants, "SESSION_VARIABLES_ADMIN ON *.*")
	} else {
		grants = append(grants, "BINLOG ADMIN ON *.*")
	}
	return s.database.CreateUser(ctx, relayUser, relayPassword, grants...)
}

func startBroker(ctx context.Context, kind string) (broker, error) {
	switch kind {
	case "embedded":
		return embedded(ctx)
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
			flags: []string{"-rocketmq", r.NameServer()}, sink: fmt.Sprintf("{rocketmq: {name_servers: [%q]}}", r.NameServer()),
			kill: r.Broker.Kill, start: r.Broker.Start, close: r.Close,
		}, nil
	}
	return broker{}, fmt.Errorf("broker %q: use kafka or rocketmq", kind)
}

func onKafka(addr string) broker {
	return broker{flags: []string{"-kafka", addr}, sink: fmt.Sprintf("{kafka: {brokers: [%q]}}", addr)}
}

func kafkaTopics(ctx context.Context, addr string) (err error) {
	for name, partitions := range topics {
		err = errors.Join(err, testkit.CreateKafkaTopic(ctx, addr, name, partitions, nil))
	}
	return err
}

// embedded is a Kafka in this process, for the shortened run.
func embedded(ctx context.Context) (broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return broker{}, err
	}
	b := onKafka(cluster.ListenAddrs()[0])
	b.close = func() error { cluster.Close(); return nil }
	return b, kafkaTopics(ctx, cluster.ListenAddrs()[0])
}

func (s *servers) close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.broker.close != nil {
		errs = append(errs, s.broker.close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.database != nil {
		errs = append(errs, s.database.Close())
	}
	return errors.Join(errs...)
}

// pause waits, or returns the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
