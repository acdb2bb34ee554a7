package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// emptyTable records the minimum age of the rows that each sweep asks for.
type emptyTable struct {
	Rows
	thresholds []time.Duration
}

func (e *emptyTable) Due(_ context.Context, _ string, _ table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	e.thresholds = append(e.thresholds, q.Threshold)
	return nil, table.CursorBehind("", true), nil
}

func (e *emptyTable) Upcoming(context.Context, string, time.Duration, time.Duration, int) ([]outbox.Candidate, error) {
	return nil, nil
}

// gapState records gaps and forgets them.
type gapState struct {
	State
	known server.ID
	at    outbox.Position
}

func (s gapState) Source() (server.ID, bool)                              { return s.known, true }
func (s gapState) Checkpoint() (outbox.Position, bool)                    { return s.at, true }
func (s gapState) AddGap(outbox.Gap) (uint64, error)                      { return 1, nil }
func (s gapState) Reset(server.ID, outbox.Position, uint64, string) error { return nil }
func (s gapState) Pause() *outbox.Pause                                   { return nil }
func (s gapState) Look(context.Context) (server.Info, outbox.Position, error) {
	return server.Info{ID: s.known}, s.at, nil
}
func (s gapState) End(context.Context) (outbox.Position, error) { return s.at, nil }

// A gap is followed at once by a sweep over rows of any age: nothing else shows the rows that lie in it.
func TestGapRequestsAFullSweepAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}
		state := gapState{known: id, at: outbox.Position{File: "log.000002", Offset: 157}}
		rows := &emptyTable{}
		r := New(Parts{
			Gate: NewGate(), State: state, Source: state, Rows: rows, Sink: shadow.NewSink(), Reader: func(canal.Handler) Reader { return nil },
		}, Settings{Fallback: fallback.Config{Tables: []string{"shop.t"}, Threshold: time.Minute, Interval: time.Hour}}, zap.NewNop(), prometheus.NewRegistry())
		testkit.Must(t, r.build(outbox.MySQL, state.at))
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = r.Sweeper.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		rows.thresholds = nil
		began := time.Now()
		_, err := r.handler.Gap(ctx, outbox.Gap{Cause: outbox.GapPurged})
		testkit.Must(t, err)
		synctest.Wait()
		if !slices.Equal(rows.thresholds, []time.Duration{0}) || time.Since(began) > 0 {
			t.Errorf("after %v there were sweeps over rows of these ages: %v", time.Since(began), rows.thresholds)
		}
	})
}
