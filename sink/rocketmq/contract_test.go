package rocketmq

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// The properties that the relay gives to messages.
func TestContractProperties(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	m := outbox.Message{
		Identity: outbox.Identity{MessageID: "m"}, BizType: "order", Key: "k", ShardingKey: "k", CreatedAt: now, Tag: "paid", Later: true, DueAt: now.Add(time.Hour),
	}
	var lines []string
	for _, p := range new(encoder).properties(&m, now) {
		lines = append(lines, p.Name)
	}
	testkit.Contract(t, "rocketmq-properties", lines)
}
