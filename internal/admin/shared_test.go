package admin

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// The service is read at most once a second, however many requests come over the network. A client that has changed something
// sees the change at once, and a command on the socket always reads the service.
func TestOneStatusASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		a := newAPI(f, prometheus.NewRegistry(), zap.NewNop())
		local := a.routes()
		network := guard(tokens{}, local)
		looks := func(want int32, why string) {
			t.Helper()
			if got := f.looks.Load(); got != want {
				t.Errorf("%s: the service was looked at %d times, want %d", why, got, want)
			}
		}
		get := func() string {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/status", nil)
			r.Host = "127.0.0.1"
			network.ServeHTTP(w, r)
			return w.Body.String()
		}
		first := get()
		for range 200 {
			if got := get(); got != first || !strings.Contains(got, `"version":"1.2.3"`) {
				t.Fatalf("another answer: %s", got)
			}
		}
		looks(1, "in one second")
		time.Sleep(time.Second)
		get()
		looks(2, "a second later")
		order := httptest.NewRequest("POST", "/api/v1/sweep", strings.NewReader("{}"))
		order.Host = "127.0.0.1"
		order.Header.Set("Content-Type", asJSON)
		network.ServeHTTP(httptest.NewRecorder(), order)
		get()
		looks(3, "after an order")
		for range 2 {
			local.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/status", nil))
		}
		looks(5, "on the socket")
	})
}
