package e2e

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/collector"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The trace of a row continues through the relay: from its commit to the status update, exported to a collector.
func TestTraces(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		c := collector.New(t)
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), fmt.Sprintf("tracing: {endpoint: %q}", c.URL))
		l.Start(t)
		const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		testkit.Must(t, l.table.Insert(t.Context(), l.sql, relay.Row{
			BizType: "order", Key: "traced", Topic: topics[0], Body: []byte("{}"), Headers: map[string]string{"traceparent": "00-" + trace + "-" + parent + "-01"},
		}, relay.Row{BizType: "order", Key: "untraced", Topic: topics[0], Body: []byte("{}")}))
		l.wait("three spans", func() bool { return len(c.Spans()) == 3 })
		names := map[string]bool{}
		for _, s := range c.Spans() {
			names[s.GetName()] = true
			if hex.EncodeToString(s.GetTraceId()) != trace {
				t.Errorf("%v", s)
			}
		}
		if !names["outbox "+topics[0]] || !names["send "+topics[0]] || !names["mark sent "+l.table.FullName()] {
			t.Errorf("%v", names)
		}
	})
}
