// Package faults runs the whole relay, in this process, between real database servers and a Kafka broker on the wire
// (kfake), and shows what becomes of rows when the log does not show them or cannot be followed.
//
// Every test names the items of the failure catalogue that it shows, and ends with an account: each committed row is in the
// broker exactly once (or as often as the test says) and marked as sent, and nothing else is there.
package faults

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }

// onBoth runs a test on MySQL and on MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, flavor testkit.Flavor)) {
	t.Helper()
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, flavor) })
	}
}
