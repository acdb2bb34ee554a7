// Package trouble shows that the relay lives through what brokers and databases do to it, and does no harm to the
// application beside it: the built program against a real database and a broker that goes away, swallows, refuses and loses
// answers. Each test has a relay, a schema and topics of its own; tests that only wait run beside one another.
package trouble

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }
