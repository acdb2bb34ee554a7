package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Whatever the running relay answers is what its OpenAPI document says: each route, with what it takes and with what it refuses.
func TestAPIContract(t *testing.T) {
	port := testkit.FreeAddress(t)
	const token = "0123456789abcdef"
	l := newLab(t, testkit.SharedDatabase(t, testkit.MariaDB), rareSweeps, "retention: {sent: 168h}")
	l.listen = fmt.Sprintf("{listen: %q, token: %s, read_token: fedcba9876543210}", port, token)
	l.start()
	l.exec("CREATE TABLE t_local_message_failed LIKE t_local_message")
	l.exec("ALTER TABLE t_local_message_failed ADD COLUMN moved_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)")
	l.commit("one", "two")
	l.sent()
	l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, status, fail_reason, created_at) VALUES ('order', 'failed', 'orders', 'body', 3, 'too large', NOW())")
	c := newContract(t, "http://"+port, token)

	for _, r := range []string{
		"GET / 200", "GET /assets/main.js 200", "GET /assets/none 404", "GET /docs/operations 200", "GET /docs/none 404", "GET /healthz 200", "GET /readyz 200", "GET /metrics 200", "GET /api/v1/openapi.json 200",
		"GET /api/v1/status 200", "GET /api/v1/me 200", "GET /api/v1/history?from=10m&step=1m 200", "GET /api/v1/history?from=x 400",
		"GET /api/v1/checkpoint 200", "GET /api/v1/checkpoint/history?limit=2 200", "GET /api/v1/checkpoint/history?limit=0 400",
		`POST /api/v1/checkpoint 200 {"latest": true, "dry_run": true}`, `POST /api/v1/checkpoint 200 {"earliest": true}`,
		`POST /api/v1/checkpoint 400 {"latest": true, "earliest": true}`, `POST /api/v1/checkpoint 409 {"file": "binlog.999999", "pos": 4}`,
		"GET /api/v1/peers 200", "GET /api/v1/gaps 200", "POST /api/v1/gaps/1/ack 200 {}", "POST /api/v1/gaps/9999/ack 404 {}",
		`POST /api/v1/pause 200 {"reason": "a test"}`, "GET /healthz 200", "POST /api/v1/sweep 409 {}", "POST /api/v1/resume 200 {}",
		"POST /api/v1/retention 200 {}", "GET /api/v1/state 200", "GET /api/v1/audit?limit=3 200", "GET /api/v1/audit?limit=x 400", "GET /api/v1/messages?status=failed 200", "GET /api/v1/messages?limit=0 400",
		"GET /api/v1/messages/stats 200", "GET /api/v1/messages/order:failed 200", "GET /api/v1/messages/order:one?body=1 200",
		"GET /api/v1/messages/unknown 404", "GET /api/v1/messages/order:one/trace 200",
		`POST /api/v1/messages/retry 200 {"filter": {"status": "failed"}, "dry_run": true}`,
		`POST /api/v1/messages/discard 200 {"filter": {"status": "failed"}, "dry_run": true}`, "POST /api/v1/messages/retry 400 {}",
	} {
		c.check(r)
	}
	l.reading()
	c.check("POST /api/v1/sweep 200 {}")
	l.wantAudit("operator token from 127.0.0.1")
	c.token = ""
	c.check("GET /api/v1/status 401")
	c.token = "fedcba9876543210"
	c.check("GET /api/v1/me 200")
	c.check("POST /api/v1/sweep 403 {}")
	c.done("GET /api/v1/events") // it does not end
}

// contract compares answers with the document that the server itself serves.
type contract struct {
	t        *testing.T
	base     string
	token    string
	document *openapi3.T
	router   routers.Router
	seen     map[*openapi3.Operation]bool
}

func newContract(t *testing.T, base, token string) *contract {
	c := &contract{t: t, base: base, token: token, seen: map[*openapi3.Operation]bool{}}
	response, err := c.send("GET", "/api/v1/openapi.json", "")
	testkit.Must(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	testkit.Must(t, err)
	c.document, err = openapi3.NewLoader().LoadFromData(data)
	testkit.Must(t, err)
	testkit.Must(t, c.document.Validate(context.Background()))
	for _, schema := range c.document.Components.Schemas { // a field that the document does not have is a fault here
		if schema.Value.AdditionalProperties.Schema == nil {
			schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
		}
	}
	c.router, err = gorillamux.NewRouter(c.document)
	testkit.Must(t, err)
	return c
}

func (c *contract) send(method, path, body string) (*http.Response, error) {
	request, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	testkit.Must(c.t, err)
	if method == "POST" {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return http.DefaultClient.Do(request)
}

// check sends one request: method, path, the status that it is to have, and a body.
func (c *contract) check(line string) {
	c.t.Helper()
	words := strings.SplitN(line+" ", " ", 4)
	method, path, status, body := words[0], words[1], words[2], words[3]
	response, err := c.send(method, path, body)
	testkit.Must(c.t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	testkit.Must(c.t, err)
	if fmt.Sprint(response.StatusCode) != status {
		c.t.Errorf("%s: %d %s", line, response.StatusCode, data)
		return
	}
	at, err := url.Parse(path)
	testkit.Must(c.t, err)
	route, params, err := c.router.FindRoute(&http.Request{Method: method, URL: at})
	if err != nil {
		c.t.Errorf("%s is not in the document: %v", line, err)
		return
	}
	c.seen[route.Operation] = true
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: response.Request, PathParams: params, Route: route},
		Status:                 response.StatusCode, Header: response.Header, Body: io.NopCloser(bytes.NewReader(data)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: response.Header.Get("Content-Type") != "application/json"},
	})
	if err != nil {
		c.t.Errorf("%s: the answer is not what the document says: %v\n%.500s", line, err, data)
	}
}

// done reports the operations that the test has not called.
func (c *contract) done(but ...string) {
	for path, item := range c.document.Paths.Map() {
		for method, op := range item.Operations() {
			if name := method + " " + path; !c.seen[op] && !strings.Contains(strings.Join(but, "\n"), name) {
				c.t.Errorf("%s was not tried", name)
			}
		}
	}
}

// wantAudit compares the list of changes with what the contract's test has done: who, what, and what stood there before and after.
func (l *lab) wantAudit(by string) {
	l.t.Helper()
	changes, err := l.admin().Audit(context.Background(), 10)
	testkit.Must(l.t, err)
	var what []string
	for _, c := range changes {
		if c.By != by || c.Error != "" {
			l.t.Errorf("recorded as %+v", c)
		}
		what = append(what, c.What)
	}
	want := []string{"sweep", "retention", "resume", "pause", "gaps ack 1", "checkpoint set (set by an operator: earliest)"}
	if !slices.Equal(what, want) {
		l.t.Fatalf("recorded %q, want %q", what, want)
	}
	if c := changes[2]; !strings.Contains(c.Before, "paused by "+by) || !strings.Contains(c.Before, "(a test)") || c.After != "at work" {
		l.t.Errorf("the end of the pause is recorded as %+v", c)
	}
	if c := changes[5]; c.Before == c.After || !strings.Contains(c.After, ":4") {
		l.t.Errorf("the move is recorded as %+v", c)
	}
}
