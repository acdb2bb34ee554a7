package app

import (
	"context"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// standbyError ends an attempt to open: another process holds the lease of the tables.
type standbyError struct{ tables []string }

// Error implements error.
func (*standbyError) Error() string { return "another relay is active" }

// standBy waits until the relay can obtain the lease; then the process starts again and repeats all checks. Until then it has
// the state directory, the admin API and a connection that reads the lease, and no connection to a broker.
func (in *instance) standBy(ctx context.Context, tables []string) error {
	if err := in.closeSink(); err != nil {
		return err
	}
	s := &standby{}
	s.idle = in.idle(s.elsewhere, operator.Refusedf("this relay stands by: ask the active one, which `canal-outbox status` names"))
	if err := in.serve(s, "started as a standby", len(tables)); err != nil {
		return err
	}
	if in.lease.lease.Await(ctx, tables) == nil {
		in.outdated.Store(true)
	}
	return nil
}

// idle is an instance without a relay at work as the admin API sees it: alive and ready, since a restart would change nothing, and with a
// state to look at.
type idle struct {
	operator.Operator
	in     *instance
	refuse func() error // what only a relay at work can do
}

// idle refuses what only a relay at work can do by refuse, and messages by away.
func (in *instance) idle(refuse func() error, away error) idle {
	i := idle{Operator: in.operator(), in: in, refuse: refuse}
	i.Move = func(context.Context, server.ID, outbox.Position, string) error { return refuse() }
	i.Tables = func(context.Context) (operator.Rows, error) { return nil, away }
	return i
}

// Live never fails.
func (*idle) Live() error { return nil }

// Ready never fails: the instance continues by itself as soon as it can.
func (*idle) Ready() error { return nil }

// Sweep is refused.
func (i *idle) Sweep(context.Context) error { return i.refuse() }

// Retention is refused.
func (i *idle) Retention(context.Context) error { return i.refuse() }

// standby is an instance while another process is active.
type standby struct{ idle }

// Pause is refused: a pause belongs to the active relay, and goes with the lease.
func (s *standby) Pause(context.Context, outbox.Pause) (*outbox.Pause, error) {
	return nil, s.elsewhere()
}

// Resume is refused.
func (s *standby) Resume(context.Context) error { return s.elsewhere() }

// Paused is the pause of the active relay.
func (s *standby) Paused() *outbox.Pause { return s.in.lease.lease.State().Paused }

// Status shows which relay is active.
func (s *standby) Status(context.Context) operator.Status {
	st := s.in.status(time.Now())
	st.Source.State, st.Paused = "standby", nil
	problems := s.in.refusedSecrets()
	if st.Lease.Error != "" {
		problems = append(problems, operator.See("standing by, and which relay is active is not known: "+st.Lease.Error, "Active and standby"))
	}
	paused := s.Paused()
	if paused != nil {
		problems = append(problems, operator.See("the active relay is "+paused.String()+", and a take-over does not end that: resume it there", "Pause and resume"))
	}
	if operator.Judge(&st, nil, problems...); len(st.Problems) == 0 {
		st.State = "standby"
	}
	st.Paused = paused
	return st
}

// elsewhere refuses what only the active relay can do.
func (s *standby) elsewhere() error {
	where := s.in.lease.lease.State().Holder
	if where == "" {
		where = "another relay"
	}
	return operator.Refusedf("this relay stands by, and %s is active: run the command there", where)
}

// showLease is the lease for people.
func (in *instance) showLease(now time.Time) operator.LeaseStatus {
	if in.lease.lease == nil { // while a start waits for the database
		return operator.LeaseStatus{State: string(lease.Standby), Since: in.started, SinceSeconds: now.Sub(in.started).Seconds()}
	}
	s := in.lease.lease.State()
	return operator.LeaseStatus{
		State: string(s.Mode), Since: s.Since, SinceSeconds: max(0, now.Sub(s.Since).Seconds()), Active: s.Holder, Term: s.Term,
		ValidSeconds: s.Left.Seconds(), Why: s.Why, Error: s.Error,
	}
}
