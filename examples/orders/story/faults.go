package story

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// faults are those of a run, in order. Each is a deliberate fault, and returns when what it broke is repaired.
var faults = []func(ctx context.Context, s *story) error{
	killRelay, killConsumers, killShop, republish, loseCampaign, stopBroker, wrongStock, emptyRedis, purgeBinlog, failTimeouts, poison,
}

// killRelay kills the relay.
func killRelay(ctx context.Context, s *story) error {
	s.say("kill -9 of the relay")
	if err := s.relay.End(syscall.SIGKILL); err != nil {
		return err
	}
	if err := relay.Pause(ctx, time.Second); err != nil {
		return err
	}
	return s.relay.Start(ctx)
}

// killConsumers kills all consumers.
func killConsumers(ctx context.Context, s *story) error {
	s.say("kill -9 of all consumers")
	for _, name := range consumerNames {
		if err := s.restart(ctx, name, 0); err != nil {
			return err
		}
	}
	return nil
}

// killShop kills the shop during reservations and writes. To be sure of one such request, it also makes a reservation whose order
// never comes.
func killShop(ctx context.Context, s *story) error {
	s.say("kill -9 of the shop, and of a request between its reservation and its order; customers do not pay any more")
	if _, err := s.stock().Reserve(ctx, 1, 3, fmt.Sprintf("died-%d", time.Now().UnixMilli())); err != nil {
		return err
	}
	return s.restart(ctx, "shop", time.Second)
}

// republish publishes the messages of some seconds again, as after a broker that lost its data: each consumer gets copies of
// handled messages.
func republish(ctx context.Context, s *story) error {
	if err := await(ctx, "a paid order that is published", s.query(ctx, `SELECT COUNT(*) > 0 FROM t_local_message
		WHERE business_type = 'order_paid' AND status = 2 AND update_time > NOW() - INTERVAL 2 SECOND`)); err != nil {
		return err
	}
	// The log must begin before the named time.
	if err := await(ctx, "an order of six seconds ago", s.query(ctx, "SELECT COUNT(*) > 0 FROM t_order WHERE created_at < NOW() - INTERVAL 6 SECOND")); err != nil {
		return err
	}
	var since string // by the database's clock
	err := s.servers.db.QueryRowContext(ctx, "SELECT DATE_FORMAT(UTC_TIMESTAMP() - INTERVAL 4 SECOND, '%Y-%m-%dT%H:%i:%sZ')").Scan(&since)
	if err != nil {
		return err
	}
	s.say("an operator has the messages of the last seconds published again: `canal-outbox checkpoint set --time %s --republish`", since)
	s.republished = true
	_, err = s.output(ctx, s.opts.Relay, "--config", s.relay.Config, "checkpoint", "set", "--time", since, "--republish", "--limit", "10000", "--yes")
	return err
}

// wrongStock writes a wrong stock into Redis. The check raises an alert; the deleted key is created again.
func wrongStock(ctx context.Context, s *story) error {
	s.say("a wrong 1000 is added to a product in Redis")
	const key = "stock:{1}"
	before := s.alerts.stockCalls()
	if err := s.servers.client.HIncrBy(ctx, key, "available", 1000).Err(); err != nil {
		return err
	}
	called := func() (bool, error) { return s.alerts.stockCalls() > before, nil }
	if err := await(ctx, "the check to call the webhook", called); err != nil {
		return err
	}
	s.wrong++
	s.say("the check has called the webhook; the key is deleted, and the check creates it again")
	return s.servers.client.Del(ctx, key).Err()
}

// loseCampaign makes the coupon consumer refuse its messages, so that they become dead letters, and sends them back.
func loseCampaign(ctx context.Context, s *story) error {
	s.say("the coupon campaign is deleted by mistake: the coupon consumer refuses its messages")
	if _, err := s.servers.db.ExecContext(ctx, "DELETE FROM t_campaign"); err != nil {
		return err
	}
	if err := await(ctx, "letters of the coupon consumer", s.query(ctx, "SELECT COUNT(*) >= 3 FROM t_dead_letter WHERE state = 'open'")); err != nil {
		return err
	}
	if _, err := s.servers.db.ExecContext(ctx, "INSERT INTO t_campaign VALUES (1, 500)"); err != nil {
		return err
	}
	listed, err := s.order(ctx, "letters", "list")
	if err != nil {
		return err
	}
	s.say("the campaign is back; `orders letters list` shows %d letters, the first: %s", strings.Count(listed, "\n"), strings.SplitN(listed, "\n", 2)[0])
	return s.sendBack(ctx)
}

// sendBack gives the coupon consumer its letters again, including those that arrive meanwhile.
func (s *story) sendBack(ctx context.Context) error {
	if err := relay.Pause(ctx, time.Second); err != nil { // for letters in flight
		return err
	}
	out, err := s.order(ctx, "letters", "send-back", "coupon")
	s.say("`orders letters send-back coupon`: %s", strings.TrimSpace(out))
	return err
}

// stopBroker kills the broker and starts it again.
func stopBroker(ctx context.Context, s *story) error {
	s.say("kill -9 of the broker")
	if err := s.servers.broker.kill(); err != nil {
		return err
	}
	if err := relay.Pause(ctx, 3*time.Second); err != nil {
		return err
	}
	if err := s.servers.broker.start(ctx); err != nil {
		return err
	}
	s.say("the broker is back")
	return nil
}

// emptyRedis restarts Redis, which keeps nothing: stock, reservations and inboxes are lost.
func emptyRedis(ctx context.Context, s *story) error {
	s.say("Redis is killed and comes back empty: no order is accepted until the check has created the stock again")
	if err := s.servers.redis.Kill(); err != nil {
		return err
	}
	return s.servers.redis.Start(ctx)
}

// purgeBinlog purges binlogs that the stopped relay has not read.
func purgeBinlog(ctx context.Context, s *story) error {
	s.say("the relay is stopped, and the binlog that it has not read is purged")
	if err := s.relay.End(syscall.SIGTERM); err != nil {
		return err
	}
	if err := relay.Pause(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := s.servers.database.Purge(ctx); err != nil {
		return err
	}
	s.purges++
	return s.relay.Start(ctx)
}

// failTimeouts makes the delayed messages of some orders FAILED: the relay cannot publish them. The scan closes those orders that
// are not paid, and releases their stock.
func failTimeouts(ctx context.Context, s *story) error {
	const change = `UPDATE t_local_message SET topic = 'no topic!' WHERE business_type = 'order_timeout' AND status = 0
		AND next_retry_time > NOW() + INTERVAL 1 SECOND ORDER BY id DESC LIMIT 20`
	err := await(ctx, "delayed messages that wait", func() (bool, error) {
		result, err := s.servers.db.ExecContext(ctx, change)
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		s.timeouts += int(n)
		return s.timeouts >= 10, err
	})
	s.poison.failed += s.timeouts
	s.say("the delayed messages of %d orders have a topic that no broker takes", s.timeouts)
	return err
}

// poison writes a message that no consumer can read, one whose number of 70 characters is too long for two of them, and one that
// the relay cannot publish.
func poison(ctx context.Context, s *story) error {
	s.say("poison messages for the consumers, and one for the relay")
	const insert = `INSERT INTO t_local_message (message_id, business_type, business_id, topic, message_body, create_time, update_time)
		VALUES (?, 'order_paid', 'poison', ?, ?, NOW(), NOW())`
	long := fmt.Sprintf(`{"order_no": "%s", "user": 1, "product": 1, "quantity": 0, "amount": 100}`, strings.Repeat("7", 70))
	for id, message := range map[string][2]string{
		"poison:body": {"order_event", "{no order"}, "poison:long": {"order_event", long}, "poison:topic": {"no topic!", "{}"},
	} {
		if _, err := s.servers.db.ExecContext(ctx, insert, id, message[0], message[1]); err != nil {
			return err
		}
	}
	s.poison.letters, s.poison.failed = 4+2, s.poison.failed+1
	for id, want := range map[string]int{"poison:body": 4, "poison:long": 2} {
		letters := s.query(ctx, fmt.Sprintf("SELECT COUNT(*) = %d FROM t_dead_letter WHERE state = 'open' AND message_id = '%s'", want, id))
		if err := await(ctx, "the letters of "+id, letters); err != nil {
			return err
		}
		s.say("%d consumers have put it to the dead letters; `orders letters discard %s`", want, id)
		if _, err := s.order(ctx, "letters", "discard", id); err != nil {
			return err
		}
	}
	return nil
}

// query returns a condition from a query whose result is true or false.
func (s *story) query(ctx context.Context, query string) func() (bool, error) {
	return func() (is bool, err error) {
		err = s.servers.db.QueryRowContext(ctx, query).Scan(&is)
		return is, err
	}
}

// await waits for a condition.
func await(ctx context.Context, what string, condition func() (bool, error)) error {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if is, err := condition(); err != nil || is {
			return err
		}
		if err := relay.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("waited %v without success for %s", patience, what)
}
