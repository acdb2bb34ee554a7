package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	maxStreams  = 32
	eventPeriod = time.Second
)

// events streams the status as server-sent events, one at once and then one each second, until the client or the server
// goes. Format: WHATWG HTML, "Server-sent events".
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		writeError(w, &Error{Code: CodeFailure, Message: fmt.Sprintf("%d event streams are open already", maxStreams)})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(eventPeriod)
	defer tick.Stop()
	for {
		data, err := json.Marshal(a.service().Status(r.Context()))
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
