//go:build faultpoints

package relay

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Builds with the tag faultpoints stop at a named point, so that a test can cause a fault exactly there. The environment names
// the point and which of its occurrences (CANAL_OUTBOX_STOP_AT=before-journal:3) and a file that is created when it is reached
// (CANAL_OUTBOX_STOP_FILE). When that file is removed, the process continues. Such builds are for tests only.
//
// Points: after-claim, after-send, before-journal, before-checkpoint, after-journal, before-update, after-update.

// instrument puts the points between the stations.
func instrument(p Parts) Parts {
	name, number, _ := strings.Cut(os.Getenv("CANAL_OUTBOX_STOP_AT"), ":")
	if name == "" {
		return p
	}
	s := &stopper{point: name, left: 1}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		s.left = n
	}
	p.Rows, p.Sink, p.State = stopRows{p.Rows, s}, stopSink{p.Sink, s}, stopState{p.State, s}
	return p
}

type stopper struct {
	point string
	left  int64
}

// at stops the calling goroutine when the point's occurrence is reached.
func (s *stopper) at(point string) {
	if point != s.point || atomic.AddInt64(&s.left, -1) != 0 {
		return
	}
	file := os.Getenv("CANAL_OUTBOX_STOP_FILE")
	if err := os.WriteFile(file, []byte(point), 0o600); err != nil {
		panic(err) // a test build whose test cannot see the point has no use
	}
	for {
		if _, err := os.Stat(file); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

type stopRows struct {
	Rows
	s *stopper
}

func (r stopRows) Claim(ctx context.Context, rows []outbox.Candidate) (string, error) {
	stamp, err := r.Rows.Claim(ctx, rows)
	r.s.at("after-claim")
	return stamp, err
}

func (r stopRows) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	r.s.at("before-update")
	unwritable, err := r.Rows.Apply(ctx, batch)
	r.s.at("after-update")
	return unwritable, err
}

type stopSink struct {
	sink.Sink
	s *stopper
}

func (k stopSink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	k.Sink.Send(batch, func(list []sink.Result) {
		k.s.at("after-send")
		done(list)
	})
}

type stopState struct {
	State
	s *stopper
}

func (t stopState) Commit(sent []outbox.Completion, written []outbox.Identity, at *outbox.Position, generation uint64) error {
	if len(sent) > 0 {
		t.s.at("before-journal")
	}
	if at != nil {
		t.s.at("before-checkpoint")
	}
	err := t.State.Commit(sent, written, at, generation)
	if len(sent) > 0 {
		t.s.at("after-journal")
	}
	return err
}
