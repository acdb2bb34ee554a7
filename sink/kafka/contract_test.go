package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// The headers that the relay adds to records.
func TestContractHeaders(t *testing.T) {
	m := outbox.Message{Identity: outbox.Identity{MessageID: "m"}, BizType: "order", CreatedAt: time.Unix(1, 0), Tag: "paid"}
	var r kgo.Record
	new(writer).write(&m, &r)
	var lines []string
	for _, h := range r.Headers {
		lines = append(lines, h.Key)
	}
	testkit.Contract(t, "kafka-headers", lines)
}
