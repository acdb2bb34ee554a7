package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/query"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// What was sampled is shown with its time and with how exact it is, in status and as metrics.
func TestSampler(t *testing.T) {
	at := time.Now().Add(-7 * time.Second)
	reg := prometheus.NewRegistry()
	s := NewSampler(func(context.Context) ([]query.Counts, error) { return nil, nil }, reg, zap.NewNop())
	s.take([]query.Counts{{
		Table: "shop.t", At: at, Delayed: 4, OldestSending: time.Minute, LongestRetry: time.Hour, CreatedAhead: 8 * time.Hour,
		Rows:   map[outbox.Status]int64{outbox.Pending: table.MaxCount, outbox.Sent: 50, outbox.Held: 3},
		States: map[string]int64{"consumed": 7},
	}}, true)
	got := s.Tables(time.Now())
	if len(got) != 1 || !got[0].SampledAt.Equal(at) || got[0].OldestPendingSeconds != nil || *got[0].OldestSendingSeconds != 60 ||
		*got[0].LongestRetrySeconds != 3600 || *got[0].CreatedAheadSeconds != 8*3600 {
		t.Errorf("tables %+v", got)
	}
	if rows := fmt.Sprint(got[0].Rows); rows != "map[consumed:7 delayed:4 held:3 pending:100000 sent:50]" {
		t.Errorf("rows %s", rows)
	}
	if kinds := fmt.Sprint(got[0].Kinds); kinds != "map[consumed:exact delayed:exact held:exact pending:at_least sent:estimate]" {
		t.Errorf("kinds %s", kinds)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if f.GetName() == "canal_outbox_rows_sample_age_seconds" {
			continue
		}
		for _, m := range f.Metric {
			fmt.Fprintln(&text, f.GetName(), m.Label[0].GetValue(), m.Gauge.GetValue()) // of rows the status, of ages the table
		}
	}
	for _, want := range []string{"oldest_sending_age_seconds shop.t 60", "longest_retry_wait_seconds shop.t 3600", "rows delayed 4", "rows held 3", "held_unknown_rows shop.t 3", "rows consumed 7"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s among\n%s", want, text.String())
		}
	}
	st := Status{Tables: got}
	Judge(&st, nil)
	if all := strings.Join(st.Problems, "\n"); !strings.Contains(all, "rows of shop.t have a creation time 8h0m0s ahead") || !strings.Contains(all, "time_zone") {
		t.Errorf("problems %q", all)
	}
}
