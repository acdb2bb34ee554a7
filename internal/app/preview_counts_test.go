package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// says compares the distance and looks for the words.
func says(t *testing.T, p operator.Preview, bytes *int64, words ...string) {
	t.Helper()
	if (p.Bytes == nil) != (bytes == nil) || bytes != nil && *p.Bytes != *bytes {
		t.Errorf("bytes: got %+v", p)
	}
	for _, word := range words {
		if text := strings.Join(p.Notes, "\n") + "\n"; !strings.Contains(text, word) {
			t.Errorf("%q is not in\n%s", word, text)
		}
	}
}

// What a preview counts: the way in the log, and the rows that wait.
func TestPreviewCounts(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "counter", relayGrants)
			ctx, root := t.Context(), db.Root()
			info, err := server.Inspect(ctx, root)
			testkit.Must(t, err)
			begin, err := info.End(ctx, root)
			testkit.Must(t, err)
			testkit.Exec(t, root, "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body, status) VALUES "+
				"('o', '1', 't', 'x', 0), ('o', '2', 't', 'x', 0), ('o', '3', 't', 'x', 0), ('o', '4', 't', 'x', 1), ('o', '5', 't', 'x', 3), ('o', '6', 't', 'x', 2)")
			near, err := info.End(ctx, root)
			testkit.Must(t, err)
			testkit.Exec(t, root, "FLUSH BINARY LOGS")
			end, err := info.End(ctx, root)
			testkit.Must(t, err)
			state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
			testkit.Must(t, err)
			testkit.Must(t, state.Reset(info.ID, begin, 0, "test"))
			testkit.Must(t, state.Close())
			o, err := OpenOffline(t.Context(), cfg, true)
			testkit.Must(t, err)
			defer func() { testkit.Must(t, o.Close()) }()

			step := int64(near.Offset - begin.Offset)
			p := previewOf(t, o, operator.Target{File: near.File, Pos: near.Offset, DryRun: true})
			says(t, p, &step, fmt.Sprintf("the new position is %d bytes later in the log\n", step),
				": the full sweep that follows looks at 3 PENDING and 1 SENDING rows; 1 FAILED ones stay as they are")
			if want := (operator.PreviewRows{Table: cfg.Tables[0].Name, Pending: 3, Sending: 1, Failed: 1}); len(p.Rows) != 1 || p.Rows[0] != want {
				t.Errorf("rows %+v, want %+v", p.Rows, want)
			}
			far := previewOf(t, o, operator.Target{Latest: true, DryRun: true})
			if far.Bytes == nil || *far.Bytes < step+int64(end.Offset) || !strings.Contains(strings.Join(far.Notes, "\n"), "later in the log, over the ends of 1 file(s)") {
				t.Errorf("the next file: %+v", far)
			}
			far = previewOf(t, o, operator.Target{Latest: true}) // MariaDB writes 40 bytes of its own some time after a new file began
			back := -*far.Bytes
			p = previewOf(t, o, operator.Target{File: begin.File, Pos: begin.Offset, DryRun: true})
			says(t, p, &back, fmt.Sprintf("the new position is %d bytes earlier in the log, over the ends of 1 file(s)", -back))
			p = previewOf(t, o, operator.Target{GTID: begin.GTIDs, DryRun: true})
			says(t, p, nil, "is earlier in the log; by how much is not known")
			testkit.Exec(t, root, "DROP TABLE "+cfg.Tables[0].Name)
			p = previewOf(t, o, operator.Target{Earliest: true, DryRun: true})
			if says(t, p, p.Bytes, "could not be counted", "doesn't exist"); len(p.Rows) != 0 {
				t.Errorf("rows %+v", p.Rows)
			}
		})
	}
}

func previewOf(t *testing.T, o *Offline, target operator.Target) operator.Preview {
	t.Helper()
	p, err := o.SetCheckpoint(t.Context(), target)
	testkit.Must(t, err)
	return p
}
