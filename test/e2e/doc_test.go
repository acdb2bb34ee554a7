// Package e2e shows that the whole relay keeps its promises, between real databases and brokers. Its servers are shared; each
// test has its own schema, relay and topics, and tests that only wait run in parallel. There are three beds:
//
//   - a world (matrix_test.go) is the built program with each kind of database and broker, under every step an operator takes;
//   - a stage (stage_test.go) is the built program between a database and a broker that goes away, swallows, refuses and loses
//     answers, and shows that it lives through that and does no harm to the application next to it;
//   - a lab (lab_test.go) is the relay in this process with a Kafka on the wire (kfake), and shows what becomes of rows when the
//     log does not show them or cannot be followed.
//
// Tests name the items of the failure catalogue that they show and end with an account: each committed row is in the broker
// exactly once (or as often as the test says) and marked as sent, and nothing else is there.
package e2e

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }

// patience is for a machine that is busy with other work. Everything waits for a condition and takes far less.
const patience = 3 * time.Minute

// onBothAtOnce is onBoth for tests that wait more than they work.
func onBothAtOnce(t *testing.T, test func(t *testing.T, flavor testkit.Flavor)) {
	t.Helper()
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			test(t, flavor)
		})
	}
}

// onBothAlone runs a test that judges times on MySQL and on MariaDB, while no other test of the package runs.
func onBothAlone(t *testing.T, test func(t *testing.T, flavor testkit.Flavor)) {
	t.Helper()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, flavor) })
	}
}

// onBoth runs a test on MySQL and on MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, flavor testkit.Flavor)) {
	t.Helper()
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, flavor) })
	}
}
