package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A relay that has worked before, or stood by, waits while the database is read-only, says so in its status, and starts when that ends. A first
// start is refused: the address is more likely that of a replica.
func TestG36_AStartWaitsForAReadOnlyDatabase(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { waitsWhile(t, flavor, "read_only", "read-only") })
	}
}

// G36: a server in offline mode, as in maintenance or behind a majority that is lost, accepts no connection of an application.
func TestG36_AStartWaitsForADatabaseInOfflineMode(t *testing.T) {
	waitsWhile(t, testkit.MySQL, "offline_mode", "offline mode")
}

// waitsWhile starts a relay while a variable of the server is set, first without and then with a state directory, and unsets it.
func waitsWhile(t *testing.T, flavor testkit.Flavor, variable, reason string) {
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
	cfg := source(t, db, variable, relayGrants)
	cfg.Admin.Listen = testkit.FreeAddress(t)
	testkit.Exec(t, db.Root(), "SET GLOBAL "+variable+" = 1")
	err := Run(t.Context(), cfg, Options{}, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Fatalf("a first start: %v", err)
	}
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Close())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Options{}, zap.NewNop()) }()
	says := func(what string) {
		t.Helper()
		testkit.WaitFor(t, time.Minute, what, func() bool {
			select {
			case err := <-ended:
				t.Fatalf("waiting for %s, it has ended: %v", what, err)
			default:
			}
			_, body := probe(cfg, "/api/v1/status")
			return strings.Contains(body, what)
		})
	}
	says(reason)
	testkit.Exec(t, db.Root(), "SET GLOBAL "+variable+" = 0")
	says(`connected"`)
	cancel()
	<-ended
}
