package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// Parameters that several routes have.
var (
	inTable  = param{name: "table", about: "schema.table; needed where the relay serves several", kind: "string"}
	byRef    = param{name: "ref", about: "primary key, message id or business key", kind: "string"}
	mayScan  = param{name: "scan", about: "1 lets it read a large table", kind: "boolean"}
	withBody = param{name: "body", about: "1 shows the body; it needs the operator's token", kind: "boolean", needs: operatorRole}
)

// messages are the routes of Messages.
func (a *api) messages() []route {
	return []route{
		{
			method: "GET", path: "/api/v1/messages", needs: reader, about: "Messages by status, type, topic, key, reason and age, page by page.", answer: operator.MessagePage{},
			params: []param{
				inTable, mayScan,
				{name: "status", about: "pending, delayed (due later), sending, sent, failed, a state that the configuration names, held (a code that it does not name), or any", kind: "string"},
				{name: "type", about: "the business type", kind: "string"},
				{name: "topic", kind: "string"},
				{name: "key", kind: "string"},
				{name: "reason", about: "a part of it", kind: "string"},
				{name: "older_than", about: "such as 1h", kind: "string"},
				{name: "limit", about: "from 1 to 1000", kind: "integer"},
				{name: "after", about: "next of the page before", kind: "string"},
			},
			do: reading(a, readQuery, Service.ListMessages),
		},
		{
			method: "GET", path: "/api/v1/messages/stats", needs: reader, about: "Counts by status, type, topic and reason.", answer: operator.MessageStats{}, params: []param{inTable},
			do: reading(a, readTable, Service.MessageStats),
		},
		{
			method: "GET", path: "/api/v1/messages/{ref}", needs: reader, about: "The rows that a text may mean.", answer: operator.MessageMatches{},
			params: []param{byRef, inTable, mayScan, withBody},
			do:     reading(a, readRef, Service.ShowMessages),
		},
		{
			method: "GET", path: "/api/v1/messages/{ref}/trace", needs: reader, about: "What is known of one message, from all sides.", answer: operator.Trace{},
			params: []param{byRef, inTable, mayScan, withBody},
			do:     reading(a, readRef, Service.TraceMessage),
		},
		a.changing("/api/v1/messages/retry", "Sets messages back to PENDING, or with dry_run says which.", Service.RetryMessages),
		a.changing("/api/v1/messages/discard", "Moves messages to the failed-message log, or with dry_run says which.", Service.DiscardMessages),
	}
}

// changing is a route that carries out an order on messages.
func (a *api) changing(path, about string, do func(Service, context.Context, operator.MessageOrder) (operator.MessageChange, error)) route {
	return route{
		method: "POST", path: path, needs: operatorRole, about: about, body: operator.MessageOrder{}, answer: operator.MessageChange{},
		do: reading(a, readOrder, do),
	}
}

// values reads the parameters of a request, strictly: an unknown one is an error, and so is one that comes twice.
type values struct {
	url.Values
	read []string
	err  error
}

func (v *values) text(name string) string {
	v.read = append(v.read, name)
	if len(v.Values[name]) > 1 && v.err == nil {
		v.err = operator.Usagef("%s comes more than once", name)
	}
	return v.Get(name)
}

func (v *values) flag(name string) bool {
	switch text := v.text(name); text {
	case "", "0", "false":
		return false
	case "1", "true":
		return true
	default:
		if v.err == nil {
			v.err = operator.Usagef("%s=%q: must be 1 or 0", name, text)
		}
		return false
	}
}

func (v *values) end() error {
	for name := range v.Values {
		if !slices.Contains(v.read, name) && v.err == nil {
			v.err = operator.Usagef("there is no parameter %q; known are %s", name, strings.Join(v.read, ", "))
		}
	}
	return v.err
}

func readTable(r *http.Request) (string, error) {
	v := values{Values: r.URL.Query()}
	return v.text("table"), v.end()
}

func readQuery(r *http.Request) (operator.MessageQuery, error) {
	v := values{Values: r.URL.Query()}
	q := operator.MessageQuery{Table: v.text("table"), Limit: operator.DefaultMessages, After: v.text("after"), Scan: v.flag("scan"), MessageFilter: operator.MessageFilter{
		Status: v.text("status"), Type: v.text("type"), Topic: v.text("topic"), Key: v.text("key"), Reason: v.text("reason"),
	}}
	if text := v.text("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return q, operator.Usagef("limit=%q: must be a number from 1 to %d", text, operator.MaxMessages)
		}
		q.Limit = n
	}
	if text := v.text("older_than"); text != "" {
		if err := q.OlderThan.UnmarshalText([]byte(text)); err != nil {
			return q, err
		}
	}
	if err := v.end(); err != nil {
		return q, err
	}
	return q, q.Check()
}

// encodeQuery is the inverse of readQuery.
func encodeQuery(q operator.MessageQuery) string {
	v := url.Values{}
	for name, text := range map[string]string{"table": q.Table, "status": q.Status, "type": q.Type, "topic": q.Topic, "key": q.Key, "reason": q.Reason, "after": q.After} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.OlderThan != 0 {
		v.Set("older_than", time.Duration(q.OlderThan).String())
	}
	if q.Scan {
		v.Set("scan", "1")
	}
	return v.Encode()
}

func readRef(r *http.Request) (operator.MessageRef, error) {
	v := values{Values: r.URL.Query()}
	ref := operator.MessageRef{Ref: r.PathValue("ref"), Table: v.text("table"), Body: v.flag("body"), Scan: v.flag("scan")}
	if err := v.end(); err != nil {
		return ref, err
	}
	return ref, ref.Check()
}

// messagePath is the inverse of readRef.
func messagePath(r operator.MessageRef, suffix string) string {
	v := url.Values{}
	if r.Table != "" {
		v.Set("table", r.Table)
	}
	for name, on := range map[string]bool{"body": r.Body, "scan": r.Scan} {
		if on {
			v.Set(name, "1")
		}
	}
	path := "/api/v1/messages/" + url.PathEscape(r.Ref) + suffix
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	return path
}

// maxOrder bounds the body of an order; a thousand rows with the longest keys fit.
const maxOrder = 8 << 20

func readOrder(r *http.Request) (operator.MessageOrder, error) {
	var order operator.MessageOrder
	body := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxOrder))
	body.DisallowUnknownFields()
	if err := body.Decode(&order); err != nil {
		return order, operator.Usagef("the body is no order: %v", err)
	}
	if body.More() {
		return order, operator.Usagef("the body has more than one order")
	}
	return order, order.Check()
}
