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
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			cfg := source(t, db, "read_only", relayGrants)
			cfg.Admin.Listen = testkit.FreeAddress(t)
			testkit.Exec(t, db.Root(), "SET GLOBAL read_only = 1")
			err := Run(t.Context(), cfg, Options{}, zap.NewNop())
			if err == nil || !strings.Contains(err.Error(), "read-only") {
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
			says("is read-only")
			testkit.Exec(t, db.Root(), "SET GLOBAL read_only = 0")
			says(`connected"`)
			cancel()
			<-ended
		})
	}
}
