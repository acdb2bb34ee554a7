package operator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// threeFiles is a server with three files; the tables do not answer.
type threeFiles struct{ Server }

func (threeFiles) Files(context.Context) ([]server.File, error) {
	return []server.File{{Name: "b.000002", Size: 1000}, {Name: "b.000003", Size: 500}, {Name: "b.000004", Size: 300}}, nil
}

// emptyState is a state directory before the first start.
type emptyState struct{ State }

func (emptyState) Source() (server.ID, bool) { return server.ID{}, false }

// The way over whole files, what was purged, and a table that does not answer in time.
func TestPreviewOfWhatIsNotKnown(t *testing.T) {
	o := &Operator{Tables: newRows().tables, State: emptyState{}, Ask: threeFiles{}}
	at := func(file string, pos uint64) outbox.Position { return outbox.Position{File: file, Offset: pos} }
	for _, c := range []struct {
		from, to outbox.Position
		order    int
		want     string
	}{
		{at("b.000002", 900), at("b.000004", 200), 1, "the new position is 800 bytes later in the log, over the ends of 2 file(s)"},
		{at("b.000004", 200), at("b.000002", 900), -1, "the new position is 800 bytes earlier in the log, over the ends of 2 file(s)"},
		{at("b.000001", 900), at("b.000004", 200), 1, "the new position is later in the log; by how much is not known: the server does not have all the files between any more"},
	} {
		if got, _ := o.distance(t.Context(), c.from, c.to, c.order); got != c.want {
			t.Errorf("%s to %s: %s", c.from, c.to, got)
		}
	}
	for n, want := range map[int64]string{7: "7", table.MaxCount: "100000 or more"} {
		if got := atMost(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	o.Tables = func(ctx context.Context) (Rows, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("counting is not bounded in time")
		}
		return nil, errors.New("too slow")
	}
	p := o.preview(t.Context(), server.Info{}, outbox.Position{}, outbox.Position{GTIDs: "0-1-1"})
	if notes := strings.Join(p.Notes, "\n"); p.Bytes != nil || !strings.Contains(notes, "how many rows wait could not be counted: too slow") {
		t.Errorf("%+v", p)
	}
}
