package app

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline"
)

// service is the daemon as the admin API sees it.
type service struct {
	Operator
	d     *daemon
	meter *meter
}

func (d *daemon) service() admin.Service {
	return &service{
		Operator: Operator{state: d.state, ask: &asker{db: d.plain}, move: d.relay.MoveTo, count: d.rows.Counts},
		d:        d, meter: newMeter(d.registry, d.started),
	}
}

// stuckAfter is how long the low-water mark may stand still, with work to do and a broker that answers, before the process
// counts as stuck.
const stuckAfter = 2 * time.Minute

// Live fails only when work does not move though nothing outside explains it.
func (s *service) Live() error {
	if since := s.d.relay.stillSince(); !since.IsZero() && time.Since(since) > stuckAfter {
		return errors.New("no progress since " + since.Format(time.RFC3339) + " though the broker and the database answer")
	}
	return nil
}

// Ready reports whether the relay is at work.
func (s *service) Ready() error {
	if !s.d.relay.Ready() {
		return errors.New("starting or stopping")
	}
	return nil
}

// Sweep asks for a sweep.
func (s *service) Sweep(context.Context) error { return s.d.relay.Sweep() }

// Status collects what every station knows.
func (s *service) Status(ctx context.Context) admin.Status {
	now := time.Now()
	st := admin.Status{
		Version: s.d.opts.Version, StartedAt: s.d.started, UptimeSeconds: now.Sub(s.d.started).Seconds(), State: "working", Problems: []string{},
		Tables: []admin.TableStatus{},
	}
	st.Source.Address = s.d.cfg.Source.Address
	st.Source.State, st.Sink.Kind, st.Sink.Breaker = "connecting", sinkKind(s.d.cfg), "closed"
	st.InFlight.MaxMessages, st.InFlight.MaxBytes = s.d.cfg.Pipeline.MaxInFlight, int64(s.d.cfg.Pipeline.MaxInFlightBytes)
	s.throughput(&st, now)
	s.stateDirectory(&st, now)
	s.tables(&st)
	if s.d.relay.Ready() {
		flow, reader := s.d.relay.pipeline.Snapshot(), s.d.reader.State()
		s.flow(&st, flow)
		s.sweep(&st, now)
		s.source(ctx, &st, reader, now)
	}
	if len(st.Problems) > 0 {
		st.State = "degraded"
	}
	if err := s.Live(); err != nil {
		st.State, st.Problems = "stuck", append(st.Problems, err.Error())
	}
	return st
}

func (s *service) throughput(st *admin.Status, now time.Time) {
	current, before, err := s.meter.look(now)
	if err != nil {
		st.Problems = append(st.Problems, "metrics cannot be read: "+err.Error())
		return
	}
	t := &st.Throughput
	t.Published, t.Retried, t.Failed, t.Deferred = current.published, current.retried, current.failed, current.deferred
	if span := now.Sub(before.at).Seconds(); span > 0 {
		t.Rate = float64(current.published-before.published) / span
	}
	if p50, ok := quantile(.5, current, before); ok {
		p99, _ := quantile(.99, current, before)
		t.LatencyP50, t.LatencyP99 = &p50, &p99
	}
}

func (s *service) stateDirectory(st *admin.Status, now time.Time) {
	stats := s.d.state.Stats()
	st.Positions.Checkpoint, _ = s.d.state.Checkpoint()
	if !stats.CheckpointAt.IsZero() {
		age := now.Sub(stats.CheckpointAt).Seconds()
		st.Positions.CheckpointSeconds = &age
	}
	st.GapsOpen = stats.UnacknowledgedGaps
	if st.GapsOpen > 0 {
		st.Problems = append(st.Problems, "there are gaps in the log that nobody has acknowledged: `canal-outbox gaps list`")
	}
}

func (s *service) tables(st *admin.Status) {
	counts, at := s.d.samples.sample()
	for _, c := range counts {
		t := admin.TableStatus{Name: c.Table, Rows: map[string]int64{}, SampledAt: &at}
		for status, n := range c.Rows {
			t.Rows[status.String()] = n
		}
		if c.OldestPending > 0 {
			age := c.OldestPending.Seconds()
			t.OldestPendingSeconds = &age
		}
		st.Tables = append(st.Tables, t)
	}
}

func (s *service) flow(st *admin.Status, f pipeline.Snapshot) {
	st.InFlight.Messages, st.InFlight.Bytes, st.InFlight.AckPending = f.InFlight, int64(f.InFlightBytes), f.Unwritten
	st.Positions.Offered, st.Positions.Settled = f.Offered, f.Settled
	st.Sink.Breaker, st.Sink.Reason = f.Breaker, f.Trouble
	st.Sink.SuspendedTopics = []admin.SuspendedTopic{}
	for _, p := range f.SuspendedTopics {
		topic, reason, _ := strings.Cut(p, ": ")
		st.Sink.SuspendedTopics = append(st.Sink.SuspendedTopics, admin.SuspendedTopic{Topic: topic, Reason: reason})
		st.Problems = append(st.Problems, "topic "+topic+" is suspended, its rows wait: "+reason)
	}
	st.Problems = append(st.Problems, s.d.relay.acker.Troubles()...)
	if f.Breaker != "closed" {
		st.Problems = append(st.Problems, "the broker takes no messages, rows wait and lose no budget: "+f.Trouble)
	}
}

func (s *service) sweep(st *admin.Status, now time.Time) {
	running, last, rows := s.d.relay.sweeper.State()
	st.Sweep.Running, st.Sweep.LastRows = running, rows
	if !last.IsZero() {
		age := now.Sub(last).Seconds()
		st.Sweep.LastSeconds = &age
	}
}

func (s *service) source(ctx context.Context, st *admin.Status, r canal.State, now time.Time) {
	st.Positions.Read = r.Position
	st.Source.State, st.Source.Error = "waiting", r.Error
	if r.Connected {
		st.Source.State = "connected"
	} else if r.Error != "" {
		st.Problems = append(st.Problems, "the binlog is not being read: "+r.Error)
	}
	if r.Warning != "" {
		st.Problems = append(st.Problems, r.Warning)
	}
	if !r.LastEvent.IsZero() {
		age, lag := now.Sub(r.LastEvent).Seconds(), r.Lag.Seconds()
		st.Source.LastEventSeconds, st.Source.LagSeconds = &age, &lag
	}
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, end, err := (&asker{db: s.d.plain}).Look(ask)
	if err != nil {
		if class := server.Classify(err); r.Connected {
			st.Problems = append(st.Problems, "the database does not answer a question ("+class.String()+")")
		}
		return
	}
	st.Source.Server = info.Version + ", " + info.ID.String()
	st.Positions.Server = end
	if r.Position.File == end.File {
		behind := int64(end.Offset) - int64(r.Position.Offset)
		st.Source.BehindBytes = &behind
	}
}
