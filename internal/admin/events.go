package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

const (
	maxStreams  = 32
	eventPeriod = time.Second
)

// shared is the status as streams and requests over the network show it: made once a second at most, however many look.
type shared struct {
	mu   sync.Mutex
	at   time.Time
	data []byte
}

func (s *shared) read(ctx context.Context, service Service) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < eventPeriod*9/10 {
		return s.data, nil
	}
	data, err := json.Marshal(service.Status(context.WithoutCancel(ctx))) // who asks first may go while the others wait
	if err != nil {
		return nil, err
	}
	s.data, s.at = data, time.Now()
	return data, nil
}

// forget makes the next look a new one: something was changed.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

// status answers those who ask over the network with the shared status. A command on the socket wants what is so now.
func (a *api) status(r *http.Request) (any, error) {
	if _, network := r.Context().Value(roleKey{}).(role); !network {
		return a.service().Status(r.Context()), nil
	}
	data, err := a.newest.read(r.Context(), a.service())
	return json.RawMessage(data), err
}

// events streams the status as server-sent events, one at once and then one each second, until the client or the server
// goes. Format: WHATWG HTML, "Server-sent events".
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		writeError(w, &operator.Error{Code: operator.CodeFailure, Message: fmt.Sprintf("%d event streams are open already", maxStreams)})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(eventPeriod)
	defer tick.Stop()
	for {
		data, err := a.newest.read(r.Context(), a.service())
		if err != nil {
			return
		}
		// A client that stopped reading must not hold the stream for ever.
		if out.SetWriteDeadline(time.Now().Add(10*time.Second)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: status\ndata: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
