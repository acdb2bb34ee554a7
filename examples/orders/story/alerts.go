package story

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
)

// alerts receives the webhook calls of the relay and of the stock check.
type alerts struct {
	*httptest.Server

	mu       sync.Mutex
	text     string          // of the last call about failed rows
	reported map[string]bool // message ids of failed rows: a call may come twice
	// stock counts the calls of the stock check.
	stock int
}

// call is the part of the webhook's JSON that the account needs.
type call struct {
	Type, Text string
	Rows       []struct {
		MessageID string `json:"message_id"`
	}
}

func (a *alerts) open() {
	a.reported = map[string]bool{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c call
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest) // the relay calls again, and the account lacks the row
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		switch c.Type {
		case "failed":
			a.text = c.Text
		case "stock":
			a.stock++
		}
		for _, row := range c.Rows {
			a.reported[row.MessageID] = true
		}
	}))
}

// stockCalls counts the alerts of the stock check.
func (a *alerts) stockCalls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stock
}

// webhook compares the rows that the webhook reported with those that are FAILED.
func (s *story) webhook(ctx context.Context, a *account) error {
	s.alerts.mu.Lock()
	defer s.alerts.mu.Unlock()
	var failed int
	for id := range s.alerts.reported {
		var is bool
		if err := s.servers.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM t_local_message WHERE message_id = ? AND status = 3", id).Scan(&is); err != nil {
			return err
		}
		if is {
			failed++
		}
	}
	a.lines = append(
		a.lines,
		line{"rows that the relay's webhook reported", len(s.alerts.reported), s.poison.failed},
		line{"and that are FAILED in the table", failed, s.poison.failed},
	)
	if s.alerts.text != "" {
		a.notes = append(a.notes, "the webhook's last call: "+s.alerts.text)
	}
	return nil
}
