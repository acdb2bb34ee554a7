package admin

import (
	"errors"
	"testing"
)

// What answers can change while the server runs, health checks included.
func TestUse(t *testing.T) {
	s := listen(t, Config{Address: "127.0.0.1:0"}, &fake{ready: errors.New("waiting")})
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
