package app

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/history"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// What moved the checkpoint is a mark with its kind; the ordinary way forward is none.
func TestMovesAreMarks(t *testing.T) {
	asked, at := 0, time.Now()
	entries := func() ([]operator.HistoryEntry, error) {
		asked++
		return []operator.HistoryEntry{
			{At: at},
			{At: at, Reason: relay.ReasonGTIDs},
			{At: at, Reason: relay.ReasonFailover, Source: "mysql server_uuid x"},
			{At: at, Reason: relay.ReasonGap + "purged"},
			{At: at, Reason: "set by an operator: latest"},
		}, nil
	}
	var m pastMoves
	for range 3 {
		marks, err := m.read(entries)
		if err != nil || len(marks) != 3 {
			t.Fatalf("%+v, %v", marks, err)
		}
		for i, want := range []operator.Mark{
			{At: at, Kind: "failover", Text: "failover to mysql server_uuid x"},
			{At: at, Kind: "gap", Text: "gap: purged"},
			{At: at, Kind: "checkpoint", Text: "checkpoint set by an operator: latest"},
		} {
			if marks[i] != want {
				t.Errorf("got %+v, want %+v", marks[i], want)
			}
		}
	}
	if asked != 1 {
		t.Errorf("the state was read %d times", asked)
	}
}

// What a relay measured is there without it, on its state directory alone, with the marks of what moved its checkpoint.
func TestG46_ThePastOfAStateDirectoryAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	state, err := checkpoint.OpenContext(t.Context(), dir, checkpoint.Options{})
	testkit.Must(t, err)
	rec := history.NewRecorder()
	testkit.Must(t, rec.Keep(state.Past, zap.NewNop()))
	rec.Mark(time.Now(), "table", "shop.t was dropped")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec.Run(ctx, history.Watched{
		Status: func(context.Context) operator.Status { return operator.Status{Version: "1.2.3"} }, Conditions: func() []history.Condition { return nil },
	})
	testkit.Must(t, state.Close())
	cfg, _, err := config.Parse("test.yaml", []byte("source: {address: '127.0.0.1:1', user: u}\ntables: [{name: a.t_local_message, preset: t_local_message}]\n"+
		"sink: {stdout: {}}\ncheckpoint: {dir: '"+dir+"'}\n"), nil, Sinks)
	testkit.Must(t, err)
	offline, err := OpenOffline(t.Context(), cfg, true)
	testkit.Must(t, err)
	got, err := offline.Timeline(t.Context(), operator.Span{From: time.Now().Add(-time.Hour), To: time.Now(), Step: operator.SampleStep})
	testkit.Must(t, err)
	testkit.Must(t, offline.Close())
	if len(got.Marks) != 2 || got.Marks[0].Text != "shop.t was dropped" || got.Marks[1].Kind != "start" {
		t.Errorf("marks %+v", got.Marks)
	}
}
