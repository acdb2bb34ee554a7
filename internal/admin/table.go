package admin

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// route is one line of the table from which the server, the roles and the OpenAPI document are made, so that they cannot drift.
type route struct {
	method, path string
	needs        role
	about        string // in a sentence, for the document
	params       []param
	body         any // of the type of the request's body; nil: none
	answer       any // of the type of the answer in JSON; nil: an empty object

	do     func(*http.Request) (any, error) // answers in JSON
	raw    http.Handler                     // in place of do, for what is not JSON
	media  string                           // of raw
	fails  bool                             // raw answers 503 as well
	absent bool                             // raw answers 404 as well, in text
}

// param is a parameter of a request: in the path if its name is there, else in the query.
type param struct {
	name, about string
	kind        string // string, integer or boolean
	needs       role   // to set it, if that is more than the route needs
}

// acts reports whether a route changes something: then the request must say that it is JSON.
func (r *route) acts() bool { return r.method == http.MethodPost }

// empty is the answer to an order that has nothing to say.
type empty struct{}

// table lists every route there is.
func (a *api) table() []route {
	return slices.Concat(a.files(), a.looks(), a.orders(), a.messages())
}

// files are the routes whose answers are no JSON, and the document.
func (a *api) files() []route {
	return []route{
		{method: "GET", path: "/{$}", about: "The dashboard, an empty page until the API fills it.", raw: http.HandlerFunc(dashboard), media: "text/html"},
		{
			method: "GET", path: "/assets/{file}", about: "Parts of the dashboard.", raw: http.HandlerFunc(pageFile), media: "*/*",
			params: []param{{name: "file", kind: "string"}}, absent: true,
		},
		{
			method: "GET", path: "/docs/{page...}", about: "The handbook.", raw: handbook(), media: "text/html",
			params: []param{{name: "page", kind: "string"}}, absent: true,
		},
		{method: "GET", path: "/healthz", about: "Whether the process can make progress.", raw: a.health(Service.Live), media: "text/plain", fails: true},
		{method: "GET", path: "/readyz", about: "Whether the relay is at work.", raw: a.health(Service.Ready), media: "text/plain", fails: true},
		{method: "GET", path: "/metrics", needs: reader, about: "Metrics for Prometheus.", raw: promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}), media: "text/plain"},
		{method: "GET", path: "/api/v1/openapi.json", needs: reader, about: "This document.", raw: http.HandlerFunc(a.openAPI), media: "application/json"},
		{method: "GET", path: "/api/v1/events", needs: reader, about: "The status each second, as server-sent events.", raw: http.HandlerFunc(a.events), media: "text/event-stream"},
	}
}

// looks show the relay and its position, which can be moved.
func (a *api) looks() []route {
	return []route{
		{
			method: "GET", path: "/api/v1/status", needs: reader, about: "Whether the relay works, how far behind it is and what needs attention.", answer: operator.Status{},
			do: a.status,
		},
		{method: "GET", path: "/api/v1/me", needs: reader, about: "What this request's token may do.", answer: Me{}, do: me},
		{
			method: "GET", path: "/api/v1/peers", needs: reader, about: "The other relays that the configuration names, one line each.", answer: []PeerStatus{},
			do: func(r *http.Request) (any, error) { return append([]PeerStatus{}, a.peers.look(r.Context())...), nil },
		},
		{
			method: "GET", path: "/api/v1/history", needs: reader, about: "What was measured in the last day, and what happened.", answer: operator.Timeline{},
			params: []param{{name: "from", about: "a time in RFC 3339, or how long ago, such as 1h", kind: "string"}, {name: "to", about: "likewise; now when it is missing", kind: "string"}, {name: "step", about: "such as 1m", kind: "string"}},
			do:     reading(a, readSpan, Service.Timeline),
		},
		{
			method: "GET", path: "/api/v1/checkpoint", needs: reader, about: "The position from which a restart reads.", answer: operator.Checkpoint{},
			do: func(r *http.Request) (any, error) { return a.service().Checkpoint(r.Context()) },
		},
		{
			method: "POST", path: "/api/v1/checkpoint", needs: operatorRole, about: "Moves the checkpoint, or with dry_run says what a move would do.",
			body: operator.Target{}, answer: operator.Preview{}, do: reading(a, readTarget, Service.SetCheckpoint),
		},
		{
			method: "GET", path: "/api/v1/checkpoint/history", needs: reader, about: "The checkpoints of the past, newest first.", answer: []operator.HistoryEntry{},
			params: []param{{name: "limit", about: "from 1 to 10000, 50 if it is left out", kind: "integer"}}, do: reading(a, readLimit, Service.History),
		},
		{
			method: "GET", path: "/api/v1/gaps", needs: reader, about: "The parts of the log that were not read.", answer: []outbox.Gap{},
			do: func(r *http.Request) (any, error) {
				gaps, err := a.service().Gaps(r.Context())
				return append([]outbox.Gap{}, gaps...), err
			},
		},
		{
			method: "POST", path: "/api/v1/gaps/{id}/ack", needs: operatorRole, about: "Marks a gap as seen.",
			params: []param{{name: "id", about: "the number of the gap", kind: "integer"}}, do: a.ackGap,
		},
	}
}

// orders tell the relay to do something.
func (a *api) orders() []route {
	return []route{
		{
			method: "GET", path: "/api/v1/state", needs: operatorRole, raw: http.HandlerFunc(a.export), media: "application/x-ndjson",
			about: "The whole state, one JSON object in a line, for `checkpoint import` in another directory.",
		},
		{
			method: "GET", path: "/api/v1/audit", needs: reader, about: "What people did, newest first: who, what, before, after.", answer: []operator.Change{},
			params: []param{{name: "limit", about: "from 1 to 10000, 50 if it is left out", kind: "integer"}}, do: reading(a, readLimit, Service.Audit),
		},
		{
			method: "POST", path: "/api/v1/pause", needs: operatorRole, about: "Stops the intake until resume.", body: operator.PauseOrder{}, answer: operator.PauseState{}, do: a.pause,
		},
		{
			method: "POST", path: "/api/v1/resume", needs: operatorRole, about: "Resumes the intake.",
			do: func(r *http.Request) (any, error) { return empty{}, a.service().Resume(r.Context()) },
		},
		{
			method: "POST", path: "/api/v1/sweep", needs: operatorRole, about: "Starts a sweep over rows of any age.",
			do: func(r *http.Request) (any, error) { return empty{}, a.service().Sweep(r.Context()) },
		},
		{
			method: "POST", path: "/api/v1/retention", needs: operatorRole, about: "Starts a pass that takes old rows out of the tables.",
			do: func(r *http.Request) (any, error) { return empty{}, a.service().Retention(r.Context()) },
		},
	}
}

// handler is a route with its role and, where it acts, the rule for its body.
func (a *api) handler(r *route) http.Handler {
	inner := r.raw
	if r.do != nil {
		inner = a.answer(r.do)
		if r.acts() {
			inner = a.act(r.do)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if err := r.allow(request); err != nil {
			refuse(w, err)
			return
		}
		inner.ServeHTTP(w, request)
	})
}

// allow refuses a request that may not use the route, or not with these parameters.
func (r *route) allow(request *http.Request) error {
	needs := r.needs
	for _, p := range r.params {
		if p.needs > needs && request.URL.Query().Has(p.name) {
			needs = p.needs
		}
	}
	return allow(request, needs)
}

// refuse answers a request that may not.
func refuse(w http.ResponseWriter, err error) {
	coded, _ := err.(*operator.Error)
	if coded.Code == operator.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeError(w, coded)
}
