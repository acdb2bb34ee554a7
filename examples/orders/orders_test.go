package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/examples/orders/story"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// asPart is set for the processes of the chain, which are this test's program too.
const asPart = "ORDERS_TEST_PART"

func TestMain(m *testing.M) {
	if os.Getenv(asPart) != "" {
		if err := command(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "orders:", err)
			os.Exit(1)
		}
		return
	}
	relay.Main(m)
}

// The example in short: a real database and a real Redis, an embedded Kafka, and every fault.
func TestTheAccountHolds(t *testing.T) {
	t.Setenv(asPart, "1")
	own, err := os.Executable()
	testkit.Must(t, err)
	var out bytes.Buffer
	err = story.Run(t.Context(), story.Options{
		Orders: own, Relay: relay.Binary(t, ""), Database: "mariadb", Broker: "embedded",
		Duration: 12 * time.Second, PayWithin: 4 * time.Second, Rate: 20,
	}, &out)
	if err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}
