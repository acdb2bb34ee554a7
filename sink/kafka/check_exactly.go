package kafka

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kadm"
)

// exactly reports what the brokers and the state topic mean for exactly_once. It begins no transaction, which would fence a running relay: the rights
// on the transactional ids show at the start.
func (d *check) exactly(ctx context.Context, x *Exactly) {
	subject := "topic " + x.topic
	switch err := x.coordinator.Check(ctx); {
	case errors.As(err, new(*sink.NoProofError)):
		d.add(server.Fault, subject, "", "%v", err)
		return
	case err != nil:
		d.add(server.Warning, subject, "", "not known whether it is as sink.kafka.exactly_once needs it: %v", err)
		return
	}
	settings, err := x.Settings(ctx, []string{x.topic})
	switch s := settings[x.topic]; {
	case err != nil:
		d.add(server.Warning, subject, "", "its settings are not known: %v", err)
	case s.Err != nil:
		d.add(server.Warning, subject, "grant DESCRIBE_CONFIGS on the topic, or see to it that its cleanup.policy is compact and its min.insync.replicas 2",
			"its settings cannot be read: %v", s.Err)
	default:
		d.copies(x.topic, s)
	}
	d.hanging(ctx, x)
}

// hanging reports a transaction of ours that is open for longer than the coordinator allows: readers of committed records wait behind it.
func (d *check) hanging(ctx context.Context, x *Exactly) {
	var ids []string
	for i := range x.producers {
		ids = append(ids, transactionalID(x.name, i))
	}
	client := x.current()
	described, err := within(ctx, func() (kadm.DescribedTransactions, error) {
		return kadm.NewClient(client).DescribeTransactions(ctx, ids...)
	})
	if err != nil {
		return // brokers before 3.0 cannot be asked, and the right to ask is no condition
	}
	for _, t := range described {
		if t.Err == nil && t.State == "Ongoing" && time.Since(time.UnixMilli(t.StartTimestamp)) > 2*transactionTimeout {
			d.add(server.Warning, "transactional id "+t.TxnID, "kafka-transactions.sh --bootstrap-server "+d.section.Brokers[0]+" find-hanging --broker-id "+
				strconv.Itoa(int(t.Coordinator))+"\nkafka-transactions.sh abort ... with what it prints",
				"it has a transaction that is open since %s: consumers that read committed records wait behind it", time.UnixMilli(t.StartTimestamp).Format(time.RFC3339))
		}
	}
}
