// Package alert reports messages that failed for good to a webhook: a JSON message with a list of rows, signed, at most one every
// few seconds, and if wanted one digest a day. Rows that another program than the relay sets to FAILED are among them.
//
// Guarantee: it never holds up the flow. Failed does not block; what waits for the webhook is bounded, and when there is more the
// oldest is dropped and counted. A message that the webhook does not confirm is sent again, so a row may be reported twice. No body
// of a message, no credential and no address of the webhook but its host leaves the package.
//
// Goroutines: the caller of Run, and one that looks at the tables.
package alert

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// Config says where alerts go. Zero values take the defaults.
type Config struct {
	Webhook string         // http or https; "" for none
	Secret  setting.Secret // of the signature; none without one
	Digest  string         // time of day of the digest by the local clock, such as 08:00; "" for none

	Source, Host, Version string // who sends, for the receiver

	// Tables are the counts for the digest and for the limits, and may be empty.
	Tables func() []Table
	Limits Limits
	// Failed lists FAILED rows of a table, MaxListed at most, for those that another program has set; nil for none.
	Failed func(ctx context.Context, table string) ([]Row, error)
	// Memory keeps the counts of the digest over a restart; nil for none.
	Memory Memory

	Random    func() float64 // jitter, in [0,1)
	Transport http.RoundTripper
}

// Row is a message that failed.
type Row struct {
	Table     string `json:"table"`
	ID        string `json:"id"`
	MessageID string `json:"message_id"`
	Type      string `json:"type"`  // the business type; "" where the table has none, and when the row cannot be read
	Key       string `json:"key"`   // the business key, likewise
	Topic     string `json:"topic"` // "" when the row cannot be read
	Attempts  int    `json:"attempts"`
	Class     string `json:"class"` // "application" for a row that another program than the relay has set to FAILED
	Reason    string `json:"reason"`
}

// Table is a table in the digest.
type Table struct {
	Table         string  `json:"table"`
	Failed        int64   `json:"failed"`
	Pending       int64   `json:"pending"`
	OldestPending float64 `json:"oldest_pending_seconds"`
	NotConsumed   int     `json:"not_consumed,omitempty"` // rows that went out again so often as they may
}

const (
	every   = 5 * time.Second  // least time between two messages
	gather  = time.Second      // how long the first of several failures waits for the others
	timeout = 10 * time.Second // of one attempt

	maxWaiting = 1000 // rows
	maxRows    = 100  // of one message
	maxReason  = 500  // bytes
	maxRetried = 100_000
)

// pauses are between attempts.
var pauses = outbox.Backoff{Base: time.Second, Max: time.Minute}

// Alerter collects failures for the webhook.
type Alerter struct {
	cfg    Config
	log    *zap.Logger
	client http.Client
	wake   chan struct{}

	sent, dropped, errors, repeated prometheus.Counter

	mu      sync.Mutex
	waiting []Row // oldest first; those in a request that has no answer are not in it
	lost    int   // dropped since the last message
	day     Day   // what the next digest counts
	kept    Day   // of it, what Memory has

	// The rows that were tried again slowly, so that their next failure is no news: the newest half and the one before.
	retried, retriedBefore map[outbox.Identity]struct{}

	tables map[string]*failedOf // what is known of FAILED rows, by table

	over    map[limit]Crossing // what is over a limit, with the last value
	crossed map[limit]Crossing // what the webhook is to get
}

// New returns an Alerter; it does no I/O. Its metrics are registered on reg, also when there is no webhook.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) *Alerter {
	cfg.setDefaults()
	count := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &Alerter{
		tables: map[string]*failedOf{},
		cfg:    cfg, log: log, wake: make(chan struct{}, 1), over: map[limit]Crossing{}, crossed: map[limit]Crossing{},
		client: http.Client{
			Transport: cfg.Transport, Timeout: timeout,
			// A redirect would send the list to an address that is not configured.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		sent:    count("canal_outbox_alerts_sent_total", "Failed messages that the webhook got."),
		dropped: count("canal_outbox_alerts_dropped_total", "Failed messages that the webhook did not get, because too many waited for it."),
		repeated: count("canal_outbox_failed_again_total",
			"Of the failed messages, those that failed again after retry.failed_every: the webhook gets them in the digest only."),
		errors: count("canal_outbox_alerts_errors_total", "Attempts to reach the webhook that failed."),
	}
}

func (c *Config) setDefaults() {
	if c.Random == nil {
		c.Random = func() float64 { return 0.5 }
	}
	if c.Tables == nil {
		c.Tables = func() []Table { return nil }
	}
}

// Retried takes over that FAILED rows are tried again without anybody having asked for it: that one fails again is counted for the digest,
// and no message of its own. It never blocks. Only the last rows are remembered.
func (a *Alerter) Retried(rows []outbox.Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range rows {
		if a.retried == nil || len(a.retried) >= maxRetried/2 {
			a.retried, a.retriedBefore = map[outbox.Identity]struct{}{}, a.retried
		}
		a.retried[id] = struct{}{}
	}
}

// failedAgain reports whether a row was one of Retried, and removes it from there. Callers hold mu.
func (a *Alerter) failedAgain(id outbox.Identity) bool {
	_, newer := a.retried[id]
	_, older := a.retriedBefore[id]
	delete(a.retried, id)
	delete(a.retriedBefore, id)
	return newer || older
}

// Failed takes over that a row became FAILED. It never blocks, and may be called from any goroutine.
func (a *Alerter) Failed(c outbox.Completion) {
	reason := c.Reason
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own(c.Identity)
	if a.failedAgain(c.Identity) {
		a.repeated.Inc()
		a.day.Again++
		return
	}
	if a.cfg.Webhook == "" {
		return
	}
	a.tell(Row{
		Table: c.Table, ID: c.ID, MessageID: c.MessageID, Type: c.BizType, Key: c.Key, Topic: c.Topic, Attempts: c.RetryCount + 1,
		Class: c.Class.String(), Reason: reason,
	})
}

// tell takes a row over for the next message. Callers hold mu.
func (a *Alerter) tell(r Row) {
	a.day.Failed++
	a.waiting = append(a.waiting, r)
	a.trim()
	a.ring()
}

// trim drops the oldest of more than can wait. Callers hold mu.
func (a *Alerter) trim() {
	if over := len(a.waiting) - maxWaiting; over > 0 {
		a.waiting = a.waiting[over:]
		a.lost += over
		a.dropped.Add(float64(over))
	}
}

// ring wakes Run.
func (a *Alerter) ring() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
