package admin

import (
	"context"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// messagesFake remembers what reached it.
type messagesFake struct {
	query    operator.MessageQuery
	ref      operator.MessageRef
	order    operator.MessageOrder
	reached  string
	statsFor string
	hangs    bool // RetryMessages lasts as long as its request
}

func (f *messagesFake) ListMessages(_ context.Context, q operator.MessageQuery) (operator.MessagePage, error) {
	f.query, f.reached = q, "list"
	if q.Topic == "everything" && !q.Scan {
		return operator.MessagePage{}, &operator.Error{Code: operator.CodeNeedsScan, Message: "it would read 7 rows"}
	}
	return operator.MessagePage{Table: q.Table, Messages: []operator.Message{}}, nil
}

func (f *messagesFake) ShowMessages(_ context.Context, ref operator.MessageRef) (operator.MessageMatches, error) {
	f.ref, f.reached = ref, "show"
	if ref.Ref == "absent" {
		return operator.MessageMatches{}, operator.NotFoundf("no row has it")
	}
	return operator.MessageMatches{Matches: []operator.MessageDetail{}, Notes: []string{}}, nil
}

func (f *messagesFake) TraceMessage(_ context.Context, ref operator.MessageRef) (operator.Trace, error) {
	f.ref, f.reached = ref, "trace"
	return operator.Trace{Events: []operator.TraceEvent{}, Unknown: []string{}}, nil
}

func (f *messagesFake) RetryMessages(ctx context.Context, o operator.MessageOrder) (operator.MessageChange, error) {
	if f.hangs {
		<-ctx.Done()
	}
	f.order, f.reached = o, "retry"
	return operator.MessageChange{}, nil
}

func (f *messagesFake) DiscardMessages(_ context.Context, o operator.MessageOrder) (operator.MessageChange, error) {
	f.order, f.reached = o, "discard"
	return operator.MessageChange{}, nil
}

func (f *messagesFake) MessageStats(_ context.Context, table string) (operator.MessageStats, error) {
	f.statsFor, f.reached = table, "stats"
	return operator.MessageStats{}, nil
}

// What the client sends is what the service gets, with the characters that keys have.
func TestMessagesThroughTheClient(t *testing.T) {
	service := &fake{}
	socket := t.TempDir() + "/s"
	serve(t, Config{Socket: socket}, service)
	c, ctx := NewClient(socket), context.Background()
	q := operator.MessageQuery{Table: "shop.m", Limit: 7, After: "abc", Scan: true, MessageFilter: operator.MessageFilter{
		Status: "failed", Type: "refund ü", Topic: "a&b", Key: "k/1 ü?#", Reason: "100%", OlderThan: operator.Duration(90 * time.Minute),
	}}
	if _, err := c.ListMessages(ctx, q); err != nil || !reflect.DeepEqual(service.query, q) {
		t.Errorf("list: %+v, %v", service.query, err)
	}
	for _, name := range []string{"17", "order:k-1", "a/b", "a%2Fb", "ü ?#", "a b+c", "stats2", "x:y:z"} {
		ref := operator.MessageRef{Ref: name, Table: "shop.m", Body: true, Scan: true}
		if _, err := c.ShowMessages(ctx, ref); err != nil || service.ref != ref || service.reached != "show" {
			t.Errorf("show %q: %+v, %v", name, service.ref, err)
		}
		if _, err := c.TraceMessage(ctx, ref); err != nil || service.ref != ref || service.reached != "trace" {
			t.Errorf("trace %q: %+v, %v", name, service.ref, err)
		}
	}
	order := operator.MessageOrder{Table: "shop.m", Filter: &operator.MessageFilter{Topic: "t", OlderThan: operator.Duration(time.Hour)}, Limit: 5, DryRun: true}
	if _, err := c.RetryMessages(ctx, order); err != nil || !reflect.DeepEqual(service.order, order) {
		t.Errorf("retry: %+v, %v", service.order, err)
	}
	order = operator.MessageOrder{IDs: []string{"1", "order:k"}, Limit: 2}
	if _, err := c.DiscardMessages(ctx, order); err != nil || !reflect.DeepEqual(service.order, order) || service.reached != "discard" {
		t.Errorf("discard: %+v, %v", service.order, err)
	}
	if _, err := c.MessageStats(ctx, "shop.m"); err != nil || service.statsFor != "shop.m" {
		t.Errorf("stats: %q, %v", service.statsFor, err)
	}
	for code, err := range map[operator.Code]error{
		operator.CodeNeedsScan: second(c.ListMessages(ctx, operator.MessageQuery{Limit: 1, MessageFilter: operator.MessageFilter{Topic: "everything"}})),
		operator.CodeNotFound:  second(c.ShowMessages(ctx, operator.MessageRef{Ref: "absent"})),
		operator.CodeUsage:     second(c.RetryMessages(ctx, operator.MessageOrder{})),
	} {
		if coded, is := err.(*operator.Error); !is || coded.Code != code {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// What cannot be meant is refused before it reaches the service.
func TestMessagesRefuseWhatCannotBeMeant(t *testing.T) {
	service := &fake{}
	base := serve(t, Config{Address: "127.0.0.1:0"}, service) + "/api/v1/messages"
	for _, path := range []string{
		"?limit=0", "?limit=x", "?limit=1001", "?older_than=soon", "?older_than=-1h", "?nonsense=1", "?scan=2", "?topic=a&topic=b",
		"?topic=%ff", "?key=%00", "?key=" + strings.Repeat("k", 4000), "/17?limit=5", "/17?body=please", "/%ff", "/17/trace?x=1", "/stats?limit=1",
	} {
		if got := ask(t, "GET", base+path, ""); got.status != 400 || !strings.Contains(got.body, `"usage"`) {
			t.Errorf("GET %.40s: %d %s", path, got.status, got.body)
		}
	}
	for _, body := range []string{
		``, `{}`, `[]`, `{"ids":["1"],"filter":{}}`, `{"ids":[]}`, `{"ids":[""]}`, `{"ids":["1","2"],"limit":1}`, `{"filter":{},"limit":-1}`,
		`{"filter":{"older_than":"soon"}}`, `{"filter":{"older_than":5}}`, `{"filter":{"colour":"red"}}`, `{"ids":[1]}`, `{"ids":["1"]} {"ids":["2"]}`,
		`{"filter":{},"limit":10001}`, `{"filter":{"key":"` + strings.Repeat("k", 4000) + `"}}`,
	} {
		for _, what := range []string{"/retry", "/discard"} {
			if got := ask(t, "POST", base+what, body, "Content-Type", asJSON); got.status != 400 || !strings.Contains(got.body, `"usage"`) {
				t.Errorf("POST %s %.60s: %d %s", what, body, got.status, got.body)
			}
		}
	}
	if got := ask(t, "POST", base+"/retry", `{"ids":["1"]}`); got.status != 400 {
		t.Errorf("not JSON: %d %s", got.status, got.body)
	}
	if service.reached != "" {
		t.Errorf("the service was reached: %s", service.reached)
	}
}

// FuzzMessages: whatever is asked, the answer is JSON with a status that fits it, and only what passes its Check reaches the service.
func FuzzMessages(f *testing.F) {
	f.Add("", "status=failed&topic=orders&limit=5&older_than=1h&scan=1&after=eyJ9", "")
	f.Add("/order:k-1", "body=1&table=shop.m", "")
	f.Add("/order:k-1/trace", "", "")
	f.Add("/stats", "table=shop.m", "")
	f.Add("/retry", "", `{"ids":["1","order:k"],"dry_run":true}`)
	f.Add("/discard", "", `{"filter":{"status":"failed","older_than":"1h30m","reason":"too large"},"limit":7}`)
	f.Add("/retry", "", `{"filter":{"key":"\u0000"}}`)
	f.Fuzz(func(t *testing.T, path, query, body string) {
		path = "/api/v1/messages" + path
		if _, err := url.Parse(path); err != nil || strings.ContainsAny(path, "?#\x00\r\n ") {
			return // not a path as a request has it
		}
		method := "GET"
		if body != "" {
			method = "POST"
		}
		service := &fake{}
		fits(t, handled(service, method, path, query, body))
		var err error
		switch service.reached {
		case "list":
			err = service.query.Check()
		case "show", "trace":
			err = service.ref.Check()
		case "retry", "discard":
			err = service.order.Check()
		}
		if err != nil {
			t.Fatalf("%q %q %q reached the service: %v", path, query, body, err)
		}
	})
}
