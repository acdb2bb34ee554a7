// Package shadow replaces the broker and the writes to the tables while another sender still does the work. `run --shadow`
// follows the binlog as usual, sends nothing and writes nothing into a table. It reports how much earlier it would have sent the
// rows than the other sender marked them.
//
// Guarantee: nothing leaves the process. The memory that it uses is bounded. Run is its only goroutine.
package shadow

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

const (
	maxOpen   = 100_000 // rows that are followed at a time
	maxLeads  = 100_000 // the newest of them make the percentiles
	lookEvery = 200 * time.Millisecond
	lookAt    = 1000 // rows at a time
	tellEvery = 10 * time.Second
)

// States reads the state of rows by primary key; rows that are gone are missing from the answer.
type States func(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error)

// Report is what a shadow has seen since its start.
type Report struct {
	Sent       int           // messages that the relay would have sent
	Marked     int           // of them, rows that the other sender has marked since: SENT, FAILED or a code of its own
	Gone       int           // rows that were deleted before a mark was seen
	Open       int           // rows that are not marked yet
	NoStatus   int           // of Sent, rows of tables without a status: they are never marked, so they are not followed
	Unfollowed int           // rows that were not followed, because too many were open
	P50, P99   time.Duration // from when the relay would have sent until the mark was seen, of the newest marked rows
}

// String is the report in a sentence.
func (r Report) String() string {
	text := fmt.Sprintf("would have sent %d messages; the other sender has marked %d of them", r.Sent, r.Marked)
	if r.Marked > 0 {
		text += fmt.Sprintf(", half within %v and 99 %% within %v after that", r.P50.Round(time.Millisecond), r.P99.Round(time.Millisecond))
	}
	text += fmt.Sprintf("; %d are not marked yet", r.Open)
	if r.Gone > 0 {
		text += fmt.Sprintf("; %d were deleted", r.Gone)
	}
	if r.NoStatus > 0 {
		text += fmt.Sprintf("; %d are of tables without a status, which are never marked", r.NoStatus)
	}
	if r.Unfollowed > 0 {
		text += fmt.Sprintf("; %d were not followed", r.Unfollowed)
	}
	return text
}

// Shadow follows the rows that would have been sent until the other sender marks them. Make it with New.
type Shadow struct {
	states States
	sink   Sink
	log    *zap.Logger

	mu     sync.Mutex
	report Report
	open   map[outbox.Identity]time.Time // when the message would have been sent
	leads  []time.Duration
	next   int // where the next lead goes when leads is full
}

// New makes a Shadow. It does no I/O.
func New(states States, s Sink, log *zap.Logger) *Shadow {
	return &Shadow{states: states, sink: s, log: log, open: map[outbox.Identity]time.Time{}}
}

// Apply takes completions in place of the table and writes nothing.
func (s *Shadow) Apply(_ context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range batch {
		if c.Action != outbox.ActionMarkSent {
			continue
		}
		s.report.Sent++
		if len(s.open) < maxOpen {
			s.open[c.Identity] = now
		} else {
			s.report.Unfollowed++
		}
	}
	return nil, nil
}

// Report returns what was seen so far.
func (s *Shadow) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	r.Open, r.NoStatus = len(s.open), int(s.sink.noStatus.Load())
	r.Sent += r.NoStatus
	if len(s.leads) > 0 {
		leads := slices.Clone(s.leads)
		slices.Sort(leads)
		r.P50, r.P99 = leads[len(leads)/2], leads[len(leads)*99/100]
	}
	return r
}

// Run looks at the rows now and then and logs the report, until ctx ends; it returns nil.
func (s *Shadow) Run(ctx context.Context) error {
	look, tell := time.NewTicker(lookEvery), time.NewTicker(tellEvery)
	defer look.Stop()
	defer tell.Stop()
	var told Report
	for {
		select {
		case <-ctx.Done():
			s.log.Info("shadow: " + s.Report().String())
			return nil
		case <-look.C:
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				s.log.Debug("shadow: cannot look at the rows, trying again", zap.Error(err))
			}
		case <-tell.C:
			if r := s.Report(); r != told {
				s.log.Info("shadow: " + r.String())
				told = r
			}
		}
	}
}

// look asks for some of the open rows, in no order.
func (s *Shadow) look(ctx context.Context) error {
	ids := make([]outbox.Identity, 0, lookAt)
	s.mu.Lock()
	for id := range s.open {
		if ids = append(ids, id); len(ids) == lookAt {
			break
		}
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	list, err := s.states(ctx, ids)
	if err != nil {
		return err
	}
	status := make(map[outbox.Identity]outbox.Status, len(list))
	for _, c := range list {
		status[c.Identity] = c.Status
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		switch shown, found := status[id]; {
		case !found:
			s.report.Gone++
		case shown == outbox.Pending || shown == outbox.Sending:
			continue
		default:
			s.report.Marked++
			s.lead(now.Sub(s.open[id]))
		}
		delete(s.open, id)
	}
	return nil
}

// lead keeps one of the newest leads. Callers hold mu.
func (s *Shadow) lead(d time.Duration) {
	if len(s.leads) < maxLeads {
		s.leads = append(s.leads, d)
		return
	}
	s.leads[s.next] = d
	s.next = (s.next + 1) % maxLeads
}

// Sink takes every message and sends none.
type Sink struct{ noStatus *atomic.Int64 }

// NewSink makes a sink.
func NewSink() Sink { return Sink{new(atomic.Int64)} }

// Send answers every message as sent.
func (s Sink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	results := make([]sink.Result, len(batch))
	for i, m := range batch {
		results[i] = sink.Result{Message: m}
		if m.LogOnly {
			s.noStatus.Add(1)
		}
	}
	go done(results) // not on the goroutine of the caller, which may hold a lock
}

// Probe says that everything is well.
func (Sink) Probe(context.Context) error { return nil }

// Topics says that every topic exists.
func (Sink) Topics(context.Context, []string) (map[string]error, error) { return nil, nil }

// Close has nothing to close.
func (Sink) Close(context.Context) error { return nil }
