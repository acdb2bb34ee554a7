package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline"
)

// service is the running relay as the admin API sees it.
type service struct {
	operator.Operator
	in *instance
}

func (in *instance) service() admin.Service {
	o := in.operator()
	o.Move, o.Hold, o.Republish = in.relay.MoveTo, in.hold, in.relay.Republish
	o.Between, o.LogOnly = between(in.cfg, in.asker.source, in.tables, in.state.Schemas), logOnly(in.cfg)
	rows := operatorRows{in.rows, in.cfg.Retry.FailedEvery, in.setBack}
	o.Tables = func(context.Context) (operator.Rows, error) { return rows, nil }
	o.Messaging = in.messaging()
	return &service{Operator: o, in: in}
}

// operator is what a person can do at any time, before the relay works too.
func (in *instance) operator() operator.Operator {
	return operator.Operator{State: operatorState{in.state}, Ask: in.asker, Record: in.record, Past: in.timeline}
}

// Live fails only when work does not move though nothing outside explains it.
func (s *service) Live() error {
	if since := s.in.relay.StillSince(); !since.IsZero() && time.Since(since) > operator.StuckAfter {
		return errors.New("no progress since " + since.Format(time.RFC3339) + " though the broker and the database answer")
	}
	return nil
}

// Ready reports whether the relay is at work.
func (s *service) Ready() error {
	if !s.in.relay.Ready() {
		return errors.New("starting or stopping")
	}
	return nil
}

// Status collects the state of each part; package operator says what of it is a problem.
func (s *service) Status(ctx context.Context) operator.Status {
	now := time.Now()
	st := s.in.status(now)
	st.Retention, st.Reconcile = s.in.showRetention(now), s.in.showChecks(now)
	troubles := s.in.refusedSecrets()
	var totals operator.Totals
	if c := st.Reconcile; c != nil && c.Missing+c.Different > 0 {
		troubles = append(troubles, operator.See(fmt.Sprintf("%d SENT row(s) are missing in their topic, and %d have another body there", c.Missing, c.Different), "Comparing tables and topics"))
	}
	if s.in.shadow != nil {
		st.Shadow = s.in.shadow.Report().String()
	}
	st.Tables, st.OtherRelays = s.in.samples.Tables(now), s.in.relays.Others()
	if s.in.relay.Ready() {
		s.again(&st)
		flow := s.in.relay.Flow.Snapshot()
		showFlow(&st, flow)
		acks := s.in.relay.Acks.Snapshot()
		totals.Tally, totals.Deferred = s.in.relay.Flow.Tally()
		totals.Retried, totals.Failed = uint64(acks.Retried), uint64(acks.Failed)
		st.WaitingKeys.First = append(st.WaitingKeys.First, s.waitingKeys()...)
		troubles = append(troubles, s.heldRows()...)
		unwritten := s.in.relay.Acks.Problems()
		for _, line := range unwritten {
			troubles = append(troubles, operator.SeeCause(line, "The database is away"))
		}
		if flow.Full && len(unwritten)+acks.Unwritable > 0 { // else a drain waits for its table
			troubles = append(troubles, operator.See(fmt.Sprintf("nothing is published until statuses are written: %d rows wait for theirs", flow.Unwritten), "Rows that cannot be written"))
		}
		troubles = append(troubles, s.rowTroubles()...)
		showRows(&st, acks)
		s.sweep(&st, now)
		showReader(&st, s.in.reader.State(), now)
		if err := s.server(ctx, &st); err != nil {
			st.Source.Away = err.Error()
		}
	}
	if trouble := s.in.contact.Trouble(); trouble != "" && st.Sink.Breaker == "closed" { // an open breaker says the same
		st.Sink.Reason, troubles = trouble, append(troubles, operator.See(trouble, "The broker is not reached at the start"))
	}
	for _, c := range s.in.alerts.Over() {
		if c.Limit > 0 { // what no consumer finishes has a sentence of its own
			troubles = append(troubles, operator.See(c.String(), "Rows wait"))
		}
	}
	s.in.meter.Show(&st, totals, now)
	s.in.trend.Show(&st, now)
	operator.Judge(&st, s.Live(), troubles...)
	return st
}

// status is what is known at any time, before the relay works too.
func (in *instance) status(now time.Time) operator.Status {
	st := operator.Status{
		Version: in.opts.Version, StartedAt: in.started, UptimeSeconds: now.Sub(in.started).Seconds(), Tables: []operator.TableStatus{},
		OtherRelays: []operator.OtherRelay{}, Lease: in.showLease(now),
	}
	st.Throughput.Topics, st.WaitingKeys.First = []operator.TopicStatus{}, []operator.WaitingKey{}
	st.Source.Address, st.Source.State, st.Source.Settings = in.cfg.Source.Address, "connecting", []string{}
	st.Sink.Kind, st.Sink.Breaker, st.Sink.SuspendedTopics = in.cfg.Sink.Kind(), "closed", []operator.SuspendedTopic{}
	st.InFlight.MaxMessages, st.InFlight.MaxBytes = in.cfg.Pipeline.MaxInFlight, int64(in.cfg.Pipeline.MaxInFlightBytes)
	stats := in.state.Stats()
	st.Positions.Checkpoint, _ = in.state.Checkpoint()
	st.Positions.CheckpointSeconds = ageOf(stats.CheckpointAt, now)
	st.Paused = in.state.Pause()
	if free, err := in.state.Free(); err == nil {
		st.StateFreeBytes = new(int64(min(free, math.MaxInt64)))
	}
	st.GapsOpen = stats.UnacknowledgedGaps
	return st
}

// refusedSecrets says which secrets and certificates are refused, or cannot be read, and since when.
func (in *instance) refusedSecrets() (list []string) {
	for _, t := range in.cfg.Troubles() {
		list = append(list, operator.See(t, "A secret is refused"))
	}
	return list
}

func showFlow(st *operator.Status, f pipeline.Snapshot) {
	st.InFlight.Messages, st.InFlight.Bytes, st.InFlight.AckPending = f.InFlight, int64(f.InFlightBytes), f.Unwritten
	st.Positions.Offered, st.Positions.Settled = f.Offered, f.Settled
	st.Sink.Breaker, st.Sink.Reason = f.Breaker, f.Trouble
	st.WaitingKeys.Keys, st.WaitingKeys.Rows = f.WaitingKeys, f.WaitingRows
	for _, t := range f.SuspendedTopics {
		st.Sink.SuspendedTopics = append(st.Sink.SuspendedTopics, operator.SuspendedTopic(t))
	}
}

const shownKeys = 10 // that wait

func (s *service) waitingKeys() (list []operator.WaitingKey) {
	for _, k := range s.in.relay.Flow.WaitingKeys(shownKeys) {
		list = append(list, operator.WaitingKey(k))
	}
	return list
}

func showRows(st *operator.Status, a ack.Snapshot) {
	problem := func(p *ack.Problem) *operator.RowProblem {
		if p == nil {
			return nil
		}
		r := &operator.RowProblem{Table: p.Table, ID: p.ID, MessageID: p.MessageID, Reason: p.Reason, At: p.At}
		if p.Class != outbox.ClassNone {
			r.Class = p.Class.String()
		}
		return r
	}
	st.NewestFailed, st.Unwritable, st.NewestUnwritable = problem(a.NewestFailed), a.Unwritable, problem(a.NewestUnwritable)
}

func (s *service) sweep(st *operator.Status, now time.Time) {
	running, last, rows := s.in.relay.Sweeper.State()
	st.Sweep.Running, st.Sweep.LastRows, st.Sweep.LastSeconds = running, rows, ageOf(last, now)
}

// again shows what becomes of FAILED rows.
func (s *service) again(st *operator.Status) {
	for i := range st.Tables {
		t := &st.Tables[i]
		if f, ok := s.in.relay.Redeliver.State(t.Name); ok {
			every := f.Every.Seconds()
			t.FailedEverySeconds, t.FailedRetried, t.FailedRetryError = &every, f.Retried, f.Error
		}
		if f, ok := s.in.relay.Redeliver.Sent(t.Name); ok {
			t.Redelivery = &operator.RedeliveryStatus{
				AfterSeconds: f.Rule.After.Seconds(), Max: f.Rule.Max, Until: f.Rule.Until, Redelivered: f.Redelivered, Marked: f.Marked,
				GivenUp: f.GivenUp, Full: f.Full, Error: f.Error,
			}
		}
	}
}

func showReader(st *operator.Status, r canal.State, now time.Time) {
	st.Positions.Read = r.Position
	st.Source.State, st.Source.Error, st.Source.Warning = "waiting", r.Error, r.Warning
	st.Source.Settings = append(st.Source.Settings, r.Settings...)
	if r.Connected {
		st.Source.State = "connected"
	}
	if r.Stuck != nil {
		st.Source.State = "stuck"
	}
	if st.Source.LastEventSeconds = ageOf(r.LastEvent, now); st.Source.LastEventSeconds != nil {
		lag := max(0, r.Lag.Seconds())
		st.Source.LagSeconds = &lag
	}
}

// server asks the server who it is and where its log ends.
func (s *service) server(ctx context.Context, st *operator.Status) error {
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, end, err := s.in.asker.Look(ask)
	if err != nil {
		return err
	}
	st.Source.Server = info.Version + ", " + info.ID.String()
	st.Positions.Server = end
	if read := st.Positions.Read; read.File == end.File {
		behind := max(0, int64(end.Offset)-int64(read.Offset))
		st.Source.BehindBytes = &behind
	}
	return nil
}

// ageOf is the time since an event in seconds; nil for an event that never was.
func ageOf(at, now time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	age := max(0, now.Sub(at).Seconds())
	return &age
}

// heldRows says why the checkpoint waits for rows that no sweep would find.
func (s *service) heldRows() []string {
	f := s.in.relay.Flow.Snapshot()
	if f.Held == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d message(s) of tables without a status wait in memory for their topic or for another attempt, the oldest since %s: the checkpoint "+
		"waits for them, and with %d of them in memory the binlog of all tables is not read any further (docs/operations/rows.md, Tables without a status)",
		f.Held, f.HeldSince.Format(time.RFC3339), s.in.cfg.Pipeline.MaxInFlight)}
}
