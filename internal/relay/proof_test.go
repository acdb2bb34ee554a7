package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/internal/shadow"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// prover answers Recover with errors and then with rows.
type prover struct {
	sink.Sink
	errors []error
	rows   []outbox.Identity
	tables []string
	calls  []string
}

func (p *prover) Recover(_ context.Context, tables []string) ([]outbox.Identity, error) {
	p.tables = tables
	if len(p.errors) > 0 {
		err := p.errors[0]
		p.errors = p.errors[1:]
		return nil, err
	}
	return p.rows, nil
}

func (p *prover) Settled([]outbox.Completion) { p.calls = append(p.calls, "settled") }
func (p *prover) Mark(context.Context) error {
	p.calls = append(p.calls, "mark")
	return nil
}
func (p *prover) Finish(context.Context) error { p.calls = append(p.calls, "finish"); return nil }

// journalled is a state that keeps what is journalled.
type journalled struct {
	emptyState
	rows []outbox.Identity
}

func (j *journalled) Commit(sent []outbox.Completion, _ []outbox.Identity, _ *outbox.Position, _ uint64) error {
	for _, c := range sent {
		if c.Action != outbox.ActionMarkSent {
			return errors.New("not sent")
		}
		j.rows = append(j.rows, c.Identity)
	}
	return nil
}

func (j *journalled) Records() ([]uint64, error) { return nil, nil }

func startProven(t *testing.T, p *prover, state *journalled) error {
	t.Helper()
	p.Sink = shadow.NewSink()
	r := New(Parts{
		Source: fixedSource{id: server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}, at: outbox.Position{File: "log.000001", Offset: 157}},
		Gate:   NewGate(), State: state, Sink: p, Prover: p, LogOnly: map[string]bool{"shop.log": true}, Reader: func(canal.Handler) Reader { return nil },
	}, Settings{Fallback: fallback.Config{Tables: []string{"shop.a"}}}, zap.NewNop(), prometheus.NewRegistry())
	_, err := r.start(t.Context())
	return err
}

// A start waits for the broker's answer, and journals the rows that it has before it sends anything.
func TestP3_RowsThatTheBrokerHasAreJournalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := outbox.Identity{Table: "shop.a", ID: "1", MessageID: "m"}
		p := &prover{errors: []error{errors.New("away"), errors.New("away")}, rows: []outbox.Identity{row}}
		state := &journalled{}
		if err := startProven(t, p, state); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(state.rows, p.rows) {
			t.Errorf("journalled: %v", state.rows)
		}
		if !slices.Equal(p.tables, []string{"shop.log", "shop.a"}) {
			t.Errorf("tables %v", p.tables)
		}
	})
}

// A broker that cannot prove anything ends the start.
func TestP3_NoProofEndsTheStart(t *testing.T) {
	err := startProven(t, &prover{errors: []error{&sink.NoProofError{Why: "create the topic"}}}, &journalled{})
	if !errors.As(err, new(*sink.NoProofError)) {
		t.Errorf("%v", err)
	}
}

// The proof is called before the registry releases a row: it may be sent again at once.
func TestP3_SettledBeforeReleased(t *testing.T) {
	p := &prover{}
	list := []outbox.Completion{{Identity: outbox.Identity{ID: "1"}}}
	func() {
		defer func() { _ = recover() }() // there is no registry
		provenProgress{nil, p}.Written(list)
	}()
	if !slices.Equal(p.calls, []string{"settled"}) {
		t.Errorf("%v", p.calls)
	}
}
