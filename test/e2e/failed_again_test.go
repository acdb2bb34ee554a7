package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

// FAILED rows of layouts with numbers, with words, and with a text key and no time of failure are tried again slowly: one refusal makes
// them FAILED again, and the webhook gets each once; when the broker takes them they are SENT. The layout without FAILED has
// nothing to do.
func TestFailedRowsAreTriedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		t.Parallel()
		alerts := make(chan string, 100)
		webhook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			alerts <- string(body)
		}))
		defer webhook.Close()
		cluster := fake(t)
		l := newLayouts(t, testkit.SharedDatabase(t, flavor), cluster, "retry: {max: 1, schedule: [10ms], failed_every: 1s}\nalerts: {webhook: \""+webhook.URL+"\"}", some("A", "B", "C", "D")...)
		fault := cluster.Fault(testkit.KafkaFault{Key: kmsg.Produce, Topic: topics[1], Err: kerr.UnknownServerError, Count: -1})
		l.Start(t)
		l.insert(1, topics[1], false)
		failing := some("A", "B", "D")
		again := func() map[string]float64 { return l.metricBy("failed_retried_total", "table") }
		l.wait("every layout to be tried again, twice", func() bool {
			for _, layout := range failing {
				if again()[l.schema()+"."+layout.Table] < 2 {
					return false
				}
			}
			return true
		})
		l.wait("them to fail again", func() bool { return l.metrics()["failed_again_total"] >= 6 })
		for _, layout := range failing {
			count := "retry_count = 1" // as when it failed first
			if layout.Name == "B" {    // whose owners count sends: the first one was the last
				count = "retry_count = 0"
			}
			l.is(layout, 1, "failed", count)
		}
		if n, ok := again()[l.schema()+".local_message_table"]; ok {
			t.Errorf("the table without FAILED has %v", n)
		}
		if out, _, _ := l.Command(t, "status"); !strings.Contains(out, "FAILED ones are tried again every 1s") {
			t.Errorf("status says\n%s", out)
		}
		fault.Remove()
		for _, layout := range failing {
			l.is(layout, 1, "sent", layout.Written)
		}
		l.stopInTime()
		out, _, _ := l.Command(t, "doctor")
		for _, words := range []string{"FAILED rows are tried again every 1s, counted from last_exec_time", "all of them in one pass", "retry.failed_every has no effect"} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), words) {
				t.Errorf("doctor does not say %q:\n%s", words, out)
			}
		}
		close(alerts)
		told := map[string]int{}
		for body := range alerts {
			var m struct{ Rows []struct{ Table string } }
			testkit.Must(t, json.Unmarshal([]byte(body), &m))
			for _, row := range m.Rows {
				told[row.Table]++
			}
		}
		for _, layout := range failing {
			if n := told[l.schema()+"."+layout.Table]; n != 1 {
				t.Errorf("layout %s: the webhook was told %d times", layout.Name, n)
			}
		}
	})
}

// some are layouts by their names.
func some(names ...string) (found []*layouts.Layout) {
	for _, layout := range layouts.All() {
		for _, name := range names {
			if layout.Name == name {
				found = append(found, layout)
			}
		}
	}
	return found
}
