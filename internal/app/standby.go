package app

import (
	"context"
	"time"

	"go.uber.org/zap"

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
func (d *daemon) standBy(ctx context.Context, tables []string) error {
	closing, cancel := context.WithTimeout(ctx, time.Second)
	err := d.sink.Close(closing)
	cancel()
	d.sink = nil
	if err != nil {
		return err
	}
	s := &standby{Operator: d.operator(), d: d}
	s.Move = func(context.Context, server.ID, outbox.Position, string) error { return d.elsewhere() }
	s.Tables = func(context.Context) (operator.Rows, error) {
		return nil, operator.Refusedf("this relay stands by: ask the active one, which `canal-outbox status` names")
	}
	if d.admin != nil {
		d.admin.Use(s)
	} else if err := d.listen(s); err != nil {
		return err
	}
	d.log.Info("started as a standby", zap.String("version", d.opts.Version), zap.String("source", d.cfg.Source.Address),
		zap.Int("tables", len(tables)), zap.String("admin", d.cfg.Admin.Listen))
	if d.tenure.lease.Await(ctx, tables) == nil {
		d.outdated.Store(true)
	}
	return nil
}

// standby is the daemon as the admin API sees it while another process is active: alive, ready, and with a state to look at.
type standby struct {
	operator.Operator
	d *daemon
}

// Live never fails: a restart would change nothing.
func (*standby) Live() error { return nil }

// Ready never fails: the standby continues as soon as it may.
func (*standby) Ready() error { return nil }

// Sweep is refused.
func (s *standby) Sweep(context.Context) error { return s.d.elsewhere() }

// Retention is refused.
func (s *standby) Retention(context.Context) error { return s.d.elsewhere() }

// Pause is refused: a pause belongs to the active relay, and goes with the lease.
func (s *standby) Pause(context.Context, outbox.Pause) (*outbox.Pause, error) {
	return nil, s.d.elsewhere()
}

// Resume is refused.
func (s *standby) Resume(context.Context) error { return s.d.elsewhere() }

// Paused is the pause of the active relay.
func (s *standby) Paused() *outbox.Pause { return s.d.tenure.lease.State().Paused }

// Status shows who is active.
func (s *standby) Status(context.Context) operator.Status {
	st := s.d.status(time.Now())
	st.Source.State, st.Paused = "standby", nil
	var problems []string
	if st.Lease.Error != "" {
		problems = append(problems, operator.See("standing by, and who is active is not known: "+st.Lease.Error, "Active and standby"))
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
func (d *daemon) elsewhere() error {
	where := d.tenure.lease.State().Holder
	if where == "" {
		where = "another relay"
	}
	return operator.Refusedf("this relay stands by, and %s is active: run the command there", where)
}

// showLease is the lease for people.
func (d *daemon) showLease(now time.Time) operator.LeaseStatus {
	if d.tenure == nil || d.tenure.lease == nil { // while a start waits for the database
		return operator.LeaseStatus{State: string(lease.Standby), Since: d.started, SinceSeconds: now.Sub(d.started).Seconds()}
	}
	s := d.tenure.lease.State()
	return operator.LeaseStatus{
		State: string(s.Mode), Since: s.Since, SinceSeconds: max(0, now.Sub(s.Since).Seconds()), Active: s.Holder, Term: s.Term,
		ValidSeconds: s.Left.Seconds(), Why: s.Why, Error: s.Error,
	}
}
