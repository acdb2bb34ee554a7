package reconcile

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// The JSON is a contract: a change of it changes docs/operations/reconcile.md, too.
func TestJSONOfAReport(t *testing.T) {
	w := &world{now: tomorrow, rows: []*outbox.Message{row("1", outbox.Sent, 0), row("2", outbox.Sent, 0)}, topics: map[string][]sink.Record{
		"orders": {stored("1", 0), stored("1", time.Minute)},
	}}
	text, err := json.MarshalIndent(w.compare(t, nil), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "from": "2026-01-02T12:00:00Z",
 "to": "2026-01-02T13:00:00Z",
 "equal": false,
 "tables": [
  {
   "table": "shop.t",
   "topic": "orders",
   "rows": 2,
   "sent": 2,
   "not_sent": 0,
   "failed": 0,
   "held": 0,
   "faulty": 0,
   "missing": 1,
   "repeated": 1,
   "copies": 1,
   "different": 0
  }
 ],
 "topics": [
  {
   "topic": "orders",
   "records": 2,
   "extra": 0,
   "without_id": 0
  }
 ],
 "missing": [
  {
   "table": "shop.t",
   "id": "12",
   "message_id": "2",
   "topic": "orders"
  }
 ],
 "extra": [],
 "repeated": [
  {
   "table": "shop.t",
   "message_id": "1",
   "topic": "orders",
   "place": "partition 0 offset 1",
   "at": "2026-01-02T12:01:00Z",
   "copies": 2
  }
 ],
 "different": [],
 "notes": [],
 "republished": 0
}`
	if string(text) != want {
		t.Errorf("the report is\n%s", text)
	}
}
