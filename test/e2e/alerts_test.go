package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A row that fails for good is reported to the webhook, once, with what finds it and without its body; while the webhook hangs,
// other rows flow.
func TestAFailedRowRaisesAnAlert(t *testing.T) {
	t.Parallel()
	bodies, hang := make(chan string, 10), make(chan struct{})
	webhook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-Canal-Outbox-Signature") == "" {
			t.Errorf("%v, headers %v", err, r.Header)
		}
		bodies <- string(body)
		<-hang
	}))
	defer webhook.Close()
	l := newLab(t, testkit.SharedMySQL(t), rareSweeps, `alerts: {webhook: "`+webhook.URL+`/hook", secret: "sixteen characters"}`)
	l.start()
	const secret = "canary of the body"
	l.exec("INSERT INTO t_local_message "+columns+" VALUES ('order', 'large', 'orders', ?)", strings.Repeat(secret, 1<<17))
	l.wait("the row to fail", func() bool { return l.metric("failed_total", `reason="permanent"`) == 1 })
	body := <-bodies
	l.commit("beside") // while the webhook does not answer
	l.wait("the row after it to be sent", func() bool {
		n := l.number("SELECT COUNT(*) FROM t_local_message WHERE status = 2")
		return n == 1
	})
	close(hang)
	l.wait("the alert to be counted", func() bool { return l.metric("alerts_sent_total") == 1 })
	var got struct {
		Type string
		Rows []map[string]any
	}
	testkit.Must(t, json.Unmarshal([]byte(body), &got))
	if got.Type != "failed" || len(got.Rows) != 1 || strings.Contains(body, "canary") {
		t.Fatalf("%.1000s", body)
	}
	row := got.Rows[0]
	if row["table"] != l.schema+".t_local_message" || row["id"] != "1" || row["message_id"] != "order:large" || row["topic"] != "orders" ||
		row["attempts"] != 1.0 || row["class"] != "permanent" || row["reason"] == "" {
		t.Errorf("%v", row)
	}
	l.stop()
	if len(bodies) > 0 {
		t.Errorf("it was reported again: %s", <-bodies)
	}
}
