package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxBody bounds a request's body; a GTID set of thousands of intervals fits.
const maxBody = 1 << 20

type api struct {
	current atomic.Pointer[Service] // what answers now
	metrics prometheus.Gatherer
	log     *zap.Logger
	streams chan struct{} // one token for each open event stream
	newest  shared        // what they send
	peers   *peers

	document []byte // in OpenAPI
}

func newAPI(service Service, metrics prometheus.Gatherer, log *zap.Logger) *api {
	a := &api{metrics: metrics, log: log, peers: newPeers(nil)}
	a.current.Store(&service)
	return a
}

func (a *api) service() Service { return *a.current.Load() }

func (a *api) routes() http.Handler {
	a.streams = make(chan struct{}, maxStreams)
	mux := http.NewServeMux()
	all := a.table()
	a.document = document(all)
	for i := range all {
		mux.Handle(all[i].method+" "+all[i].path, a.handler(&all[i]))
	}
	nothing := route{needs: reader, do: func(r *http.Request) (any, error) {
		return nil, operator.NotFoundf("there is no %s %s; /api/v1/openapi.json lists what there is", r.Method, r.URL.Path)
	}}
	mux.Handle("/api/", a.handler(&nothing))
	return headers(claimed(mux))
}

// headers forbids what no part of this server needs.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// health answers a probe, which needs no token: it reports whether the service is up, and whether an operator has paused it.
func (a *api) health(check func(Service) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		service, text := a.service(), "ok"
		if p := service.Paused(); p != nil {
			text = "ok, paused by " + p.By + " since " + p.Since.Format(time.RFC3339)
		}
		if err := check(service); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = err.Error()
		}
		_, _ = io.WriteString(w, text+"\n") // a probe that has gone needs no answer
	}
}

// answer makes a handler of a function: its value becomes JSON, its error an error body.
func (a *api) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := f(r)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, value)
	}
}

// fail answers with an error.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var coded *operator.Error
	if !errors.As(err, &coded) {
		a.log.Warn("admin request failed", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.Error(err))
		coded = &operator.Error{Code: operator.CodeFailure, Message: err.Error()}
	}
	writeError(w, coded)
}

// act is answer for requests that change something. They must say that they are JSON, which no HTML form can.
func (a *api) act(f func(*http.Request) (any, error)) http.HandlerFunc {
	return a.answer(func(r *http.Request) (any, error) {
		kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return nil, operator.Usagef("Content-Type must be application/json")
		}
		a.log.Info("admin request", zap.String("method", r.Method), zap.String("path", r.URL.Path), zap.String("by", operator.Caller(r.Context())))
		defer a.newest.forget()
		return f(r)
	})
}

// decode reads the body of a request; one without a body leaves into as it is.
func decode(r *http.Request, into any) error {
	body := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return operator.Usagef("the body cannot be read: %v", err)
	}
	return nil
}

func (a *api) pause(r *http.Request) (any, error) {
	var order operator.PauseOrder
	if err := decode(r, &order); err != nil {
		return nil, err
	}
	if err := order.Check(); err != nil {
		return nil, err
	}
	p, err := a.service().Pause(r.Context(), outbox.Pause{By: operator.Caller(r.Context()), Since: time.Now().UTC().Truncate(time.Second), Reason: order.Reason})
	return operator.PauseState{Paused: p}, err
}

// reading answers with what do makes of what read finds in the request.
func reading[In, Out any](a *api, read func(*http.Request) (In, error), do func(Service, context.Context, In) (Out, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		in, err := read(r)
		if err != nil {
			return nil, err
		}
		return do(a.service(), r.Context(), in)
	}
}

func readTarget(r *http.Request) (target operator.Target, err error) {
	if err := decode(r, &target); err != nil {
		return target, err
	}
	return target, target.Check()
}

const (
	defaultHistory = 50
	maxHistory     = 10_000
)

// readLimit is how many entries of a list are asked for.
func readLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultHistory, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxHistory {
		return 0, operator.Usagef("limit must be a number from 1 to %d", maxHistory)
	}
	return n, nil
}

// export streams the state. An error in the middle cuts it, which the import notices: the last line is missing.
func (a *api) export(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &written{ResponseWriter: w}
	if err := a.service().Export(r.Context(), out); err != nil && !out.any {
		a.fail(w, r, err)
	} else if err != nil {
		a.log.Warn("the export of the state was cut", zap.Error(err))
	}
}

// written records whether the answer has begun.
type written struct {
	http.ResponseWriter
	any bool
}

// Write implements io.Writer.
func (w *written) Write(p []byte) (int, error) {
	w.any = true
	return w.ResponseWriter.Write(p)
}

func (a *api) ackGap(r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, operator.Usagef("%q is not the number of a gap", r.PathValue("id"))
	}
	return struct{}{}, a.service().AckGap(r.Context(), id)
}

// errorBody is the JSON of every error.
type errorBody struct {
	Error *operator.Error `json:"error"`
}

func writeError(w http.ResponseWriter, err *operator.Error) {
	writeJSON(w, httpStatus(err.Code), errorBody{err})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"code":"failure","message":"the answer has no JSON form"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that has gone needs no answer
}
