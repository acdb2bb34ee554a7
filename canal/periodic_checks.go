package canal

import (
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// lookInterval is the number of heartbeats between two checks of the server during an open stream.
const lookInterval = 10

// checkPeriodically checks the server while a stream is open: its clock, which may be set at any time (D13), a second reader with
// our server id, where the list of replicas shows one (A13), and the settings that a start checks, which may be changed later.
// The returned function ends it.
func (r *Reader) checkPeriodically(ctx context.Context, info server.Info) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.checkSettings(ctx, info)
		for outbox.Wait(ctx, lookInterval*r.cfg.Heartbeat, nil) {
			r.compareClocks(ctx)
			r.checkSettings(ctx, info)
			if info.ListsReplicas() {
				r.checkID(ctx, info)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *Reader) compareClocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if offset, err := server.ClockOffset(ctx, r.db); err == nil { // if the server does not answer, the stream ends too
		r.gauge.compared(offset)
	}
}

// checkSettings reports each fault, and each warning that this reader's first check did not find: doctor reports those of the
// start.
func (r *Reader) checkSettings(ctx context.Context, then server.Info) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now, err := server.Inspect(ctx, r.db)
	if err != nil {
		return // if the server does not answer, the stream ends too
	}
	findings, err := now.CheckSettings(ctx, r.db)
	if err != nil {
		return
	}
	if now.ID != then.ID {
		findings = append(findings, server.Finding{
			Severity: server.Fault, Subject: "server.server_id", Fix: "restore the old server, or expect the relay to refuse this one at its next connection until an operator accepts it",
			What: fmt.Sprintf("the server was %s when the binlog was opened and is %s now", then.ID, now.ID),
		})
	}
	if r.settings == nil {
		r.settings = map[string]bool{}
		for _, f := range findings {
			r.settings[f.Subject+": "+f.What] = f.Severity == server.Warning
		}
	}
	var wrong []wrongSetting
	for _, f := range findings {
		if !r.settings[f.Subject+": "+f.What] {
			name := strings.TrimPrefix(f.Subject, "server.")
			wrong = append(wrong, wrongSetting{name, name + ": " + f.What + "; fix: " + f.Fix})
		}
	}
	for _, w := range r.gauge.setWrong(wrong) {
		r.log.Error("a setting of the server must be changed", zap.String("setting", w.name), zap.String("what", w.text))
	}
}
