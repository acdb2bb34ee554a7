package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// What answers can change while the server runs, health checks included.
func TestUse(t *testing.T) {
	s, err := Listen(Config{Address: "127.0.0.1:0"}, &fake{ready: errors.New("waiting")}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	url := "http://" + s.Addr().String()
	if got := ask(t, "GET", url+"/readyz", ""); got.status != 503 || got.body != "waiting\n" {
		t.Errorf("before: got %d %s", got.status, got.body)
	}
	later := &fake{live: errors.New("stuck")}
	s.Use(later)
	if got := ask(t, "GET", url+"/readyz", ""); got.status != 200 {
		t.Errorf("after: got %d %s", got.status, got.body)
	}
	if got := ask(t, "GET", url+"/healthz", ""); got.status != 503 {
		t.Errorf("after: got %d %s", got.status, got.body)
	}
	ask(t, "POST", url+"/api/v1/sweep", "{}", "Content-Type", asJSON)
	if later.sweeps.Load() != 1 {
		t.Error("an act went to the old service")
	}
}
