package reserved

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// flow and table in one; it records the calls. A step that is named in fail ends with an error, and at a stop the context ends there.
type fake struct {
	calls  []string
	fail   string
	stop   context.CancelFunc
	absent string // the id of a row that has changed
	room   int    // messages that Publish takes in all
}

var errFake = errors.New("failed")

func (f *fake) call(name string, ids ...string) error {
	f.calls = append(f.calls, strings.TrimSpace(name+" "+strings.Join(ids, ",")))
	if f.fail != name {
		return nil
	}
	if f.stop != nil {
		f.stop()
		return nil
	}
	return errFake
}

func (f *fake) Reserve(rows []outbox.Candidate) (free, suspended []outbox.Candidate) {
	return rows, nil
}

func (f *fake) Release(rows []outbox.Candidate) { _ = f.call("release", names(rows)...) }

func (f *fake) Return(rows []outbox.Candidate, claim string) {
	_ = f.call("return "+claim, names(rows)...)
}

func (f *fake) Publish(ctx context.Context, rows []*outbox.Message, rejected []outbox.Completion) (int, error) {
	var ids []string
	for _, m := range rows {
		ids = append(ids, m.ID)
	}
	for _, c := range rejected {
		ids = append(ids, "rejected "+c.ID)
	}
	if err := f.call("publish", ids...); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return min(f.room, len(rows)), ctx.Err()
	}
	return len(rows), nil
}

func names(rows []outbox.Candidate) (ids []string) {
	for _, c := range rows {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

func (f *fake) steps(claims bool) Steps {
	s := Steps{
		Pieces: func(_ context.Context, ids []outbox.Identity) ([][]outbox.Identity, error) {
			return slices.Collect(slices.Chunk(ids, 2)), f.call("pieces")
		},
		Read: func(ctx context.Context, ids []outbox.Identity) (messages []*outbox.Message, rejected []outbox.Completion, err error) {
			for _, id := range ids {
				switch id.ID {
				case f.absent:
				case "3":
					rejected = append(rejected, outbox.Completion{Identity: id})
				default:
					messages = append(messages, &outbox.Message{Identity: id})
				}
			}
			return messages, rejected, errors.Join(ctx.Err(), f.call("read"))
		},
		Before: func([]*outbox.Message, map[outbox.Identity]outbox.Candidate) error { return f.call("before") },
		Taken:  func(m *outbox.Message, _ outbox.Candidate) { _ = f.call("taken", m.ID) },
	}
	if claims {
		s.Claim = func(context.Context) (string, error) { return "c", f.call("claim") }
	}
	return s
}

// Wherever the call ends, each row was handed over or has no owner any more, and at a stop the claims of the others are released.
func TestEachRowIsHandedOverOrReleased(t *testing.T) {
	whole := "claim pieces read before [publish 1,2] [taken 1] [taken 2] read before [publish rejected 3] release"
	for _, c := range []struct {
		name, fail, absent, want string
		stop                     bool
		gone                     int
	}{
		{name: "all", want: whole},
		{name: "a row that has changed", absent: "1", gone: 1, want: "claim pieces read before [publish 2] [taken 2] read before [publish rejected 3] [release 1]"},
		{name: "no claim", fail: "claim", want: "claim [release 1,2,3]"},
		{name: "no pieces", fail: "pieces", want: "claim pieces [release 1,2,3]"},
		{name: "no answer to the reading", fail: "read", want: "claim pieces read [release 1,2,3]"},
		{name: "not before", fail: "before", want: "claim pieces read before [release 1,2,3]"},
		{name: "a stop after the claim", fail: "claim", stop: true, want: "claim pieces read before [publish 1,2] [taken 1] [return c 2,3]"},
		{name: "a stop in the reading", fail: "read", stop: true, want: "claim pieces read before [publish 1,2] [taken 1] [return c 2,3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &fake{fail: c.fail, absent: c.absent, room: 1}
			if c.stop {
				f.stop = cancel
			}
			var rows []outbox.Candidate
			for i := range 3 {
				rows = append(rows, outbox.Candidate{Identity: outbox.Identity{Table: "shop.t", ID: fmt.Sprint(i + 1)}})
			}
			gone, err := Publish(ctx, f, rows, f.steps(true))
			var got []string
			for _, call := range f.calls {
				if strings.Contains(call, " ") {
					call = "[" + call + "]"
				}
				got = append(got, call)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("calls\n%s, want\n%s", text, c.want)
			}
			if gone != c.gone || (err != nil) != (c.fail != "") {
				t.Errorf("%d rows gone, %v", gone, err)
			}
		})
	}
}

// A stop interrupts the queries of rows that need no claim.
func TestRowsWithoutAClaimAreReleasedAtAStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{fail: "pieces", stop: cancel}
	_, err := Publish(ctx, f, []outbox.Candidate{{Identity: outbox.Identity{ID: "1"}}}, f.steps(false))
	if !errors.Is(err, context.Canceled) || !slices.Equal(f.calls, []string{"pieces", "read", "release 1"}) {
		t.Errorf("calls %q, %v", f.calls, err)
	}
}
