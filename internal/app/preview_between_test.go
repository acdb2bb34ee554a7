package app

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// What lies between two positions is counted from the log and looked up in the table; and the log is found by the time.
func TestPreviewBetween(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, testkit.Needs(t, flavor, "8.0", "column names in its log: the sweep looks at such rows"))
			cfg := source(t, db, "between", relayGrants)
			ctx, root, table := t.Context(), db.Root(), cfg.Tables[0].Name
			info, err := server.Inspect(ctx, root)
			testkit.Must(t, err)
			end := func() outbox.Position {
				at, err := info.FileEnd(ctx, root)
				testkit.Must(t, err)
				return at
			}
			testkit.Exec(t, root, "FLUSH BINARY LOGS")
			testkit.Must(t, db.AwaitLogBegun(ctx))
			begin, began := end(), time.Now()
			row := func(key string, status int) string {
				return fmt.Sprintf("INSERT INTO %s (biz_type, biz_key, topic, message_body, status) VALUES ('o', '%s', 't', 'x', %d)", table, key, status)
			}
			// The server's clock for this session: each step is a minute.
			session, err := root.Conn(ctx)
			testkit.Must(t, err)
			defer func() { testkit.Must(t, session.Close()) }()
			minute := func(n int) time.Time { return began.Add(time.Duration(n) * time.Minute).Truncate(time.Second) }
			var ends []outbox.Position // behind each minute
			step := func(statements ...string) {
				t.Helper()
				execOn(t, session, fmt.Sprintf("SET SESSION timestamp = %d", minute(len(ends)+1).Unix()))
				for _, s := range statements {
					execOn(t, session, s)
				}
				ends = append(ends, end())
			}
			step(row("pending", 0), row("sent", 2))
			step("BEGIN", row("failed", 3), row("claimed", 1), "COMMIT", row("gone", 0))
			step("FLUSH BINARY LOGS")
			testkit.Must(t, db.AwaitLogBegun(ctx))
			step("CREATE TABLE "+table+"_other (a INT)", row("next file", 0), "DELETE FROM "+table+" WHERE biz_key = 'gone'")
			execOn(t, session, "SET SESSION timestamp = DEFAULT")

			// By time: the position is behind everything before it and before everything at it.
			ask := &asker{db: root, source: must(serverConfig(cfg.Source))}
			for n, want := range ends[:2] {
				at, _, err := ask.At(ctx, minute(n+2))
				testkit.Must(t, err)
				if at != want {
					t.Errorf("before minute %d: %s, want %s", n+2, at, want)
				}
			}
			if at, _, err := ask.At(ctx, minute(9)); err != nil || at.Compare(ends[3]) < 0 {
				t.Errorf("behind all: %s, want the end %s (%v)", at, ends[3], err)
			}
			if at, since, err := ask.At(ctx, began.AddDate(-1, 0, 0)); err != nil || !at.IsZero() || since.IsZero() || since.After(time.Now()) {
				t.Errorf("before all: %s since %v (%v)", at, since, err)
			}

			state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
			testkit.Must(t, err)
			testkit.Must(t, state.Reset(info.ID, ends[1], 0, "test"))
			testkit.Must(t, state.Close())
			o, err := OpenOffline(t.Context(), cfg, true)
			testkit.Must(t, err)
			defer func() { testkit.Must(t, o.Close()) }()
			p := previewOf(t, o, operator.Target{File: begin.File, Pos: begin.Offset, DryRun: true})
			wantBetween(t, p, operator.PreviewBetween{Transactions: 4, Rows: 5, Pending: 1, Settled: 3, Gone: 1})
			says(t, p, p.Bytes, "between the two positions: 4 transactions with 5 outbox rows: 1 are PENDING, which would be sent; 3 settle at once; 1 are gone")
			p = previewOf(t, o, operator.Target{File: ends[3].File, Pos: ends[3].Offset, DryRun: true})
			wantBetween(t, p, operator.PreviewBetween{Transactions: 3, Rows: 1, Pending: 1})
			says(t, p, p.Bytes, "1 are PENDING, which the sweep publishes")
			for text, words := range map[string]string{
				"2001-02-03T04:05:06Z":               "what was before is purged",
				"2101-02-03 04:05:06 Asia/Shanghai":  "has not come yet",
				"2101-02-03 04:05:06":                "is not a time",
				"2026-01-02 03:04:05 Atlantis/North": "is not a time",
			} {
				if _, err := o.SetCheckpoint(ctx, operator.Target{Time: text}); err == nil || !strings.Contains(err.Error(), words) {
					t.Errorf("%s: %v, want %q", text, err, words)
				}
			}
			if at, _ := o.State.Checkpoint(); at != ends[1] {
				t.Errorf("a refused move went to %s", at)
			}
		})
	}
}

func wantBetween(t *testing.T, p operator.Preview, want operator.PreviewBetween) {
	t.Helper()
	if p.Between == nil || *p.Between != want {
		got, _ := json.Marshal(p.Between)
		t.Errorf("between %s and %s: %s, want %+v\n%s", p.From, p.To, got, want, strings.Join(p.Notes, "\n"))
	}
}

func execOn(t *testing.T, conn *sql.Conn, statement string) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
