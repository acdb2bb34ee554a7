package adopt

import (
	"context"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// brokerStep finds the broker.
type brokerStep struct{ *setup }

// chooseBroker asks for the broker until it answers.
func (s brokerStep) chooseBroker(ctx context.Context) error {
	return s.settle(ctx, func(again bool) error { return s.askBroker(ctx, again) }, func() error { return s.tryBroker(ctx) })
}

func (s brokerStep) askBroker(ctx context.Context, again bool) error {
	b := &s.Broker
	if !again && (len(b.Kafka) > 0 || len(b.RocketMQ) > 0 || b.Stdout) {
		return nil
	}
	if s.terminal == nil {
		return operator.Usagef("no broker is named, and there is no terminal to ask at: --kafka HOST:PORT, --rocketmq HOST:PORT, or --stdout to print the messages")
	}
	kind, err := s.terminal.ask(ctx, "Broker: kafka, rocketmq, or stdout to print the messages only", "kafka")
	if err != nil {
		return err
	}
	*b = Broker{}
	var addresses string
	switch strings.ToLower(kind) {
	case "stdout":
		b.Stdout = true
	case "rocketmq":
		addresses, err = s.terminal.ask(ctx, "Its name servers (host:port, separated by commas)", "127.0.0.1:9876")
		b.RocketMQ = list(addresses)
	case "kafka":
		addresses, err = s.terminal.ask(ctx, "Its brokers (host:port, separated by commas)", "127.0.0.1:9092")
		b.Kafka = list(addresses)
	default:
		s.terminal.say("  ! %q is none of the three.", kind)
		return s.askBroker(ctx, true)
	}
	return err
}

func (s brokerStep) tryBroker(ctx context.Context) error {
	b := s.Broker
	switch {
	case len(b.Kafka) > 0:
		s.content.kind, s.content.servers = "kafka", b.Kafka
	case len(b.RocketMQ) > 0:
		s.content.kind, s.content.servers = "rocketmq", b.RocketMQ
	default:
		s.content.kind, s.content.servers = "stdout", nil
	}
	cfg, err := s.parse()
	if err != nil {
		return err
	}
	var wrong []config.Fault
	for _, f := range app.CheckBroker(ctx, cfg) {
		if f.Severity == server.Fault {
			wrong = append(wrong, found(s.content.serversKey(), strings.Join(s.content.servers, ","), f))
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(wrong) > 0 {
		return faults(wrong...)
	}
	return nil
}
