package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A part of the log is published again on purpose: its SENT rows go out once more under their message ids and stay SENT, everything else
// is left alone, and what is too much is refused before anything goes out.
func TestRepublishARange(t *testing.T) {
	ctx := context.Background()
	l := newLab(t, testkit.SharedDatabase(t, testkit.MySQL))
	l.start()
	l.commit("before")
	l.sent()
	l.wait("the checkpoint to follow", func() bool { return l.metric("journal_entries") == 0 })
	mark, err := l.admin().Checkpoint(ctx)
	testkit.Must(t, err)
	l.commit(keys("again", 5)...)
	l.exec("INSERT INTO t_local_message " + columns + " VALUES ('order', 'failed', 'orders', 'body of failed')")
	l.sent()
	l.exec("UPDATE t_local_message SET status = 3 WHERE biz_key = 'failed'")
	l.exec("DELETE FROM t_local_message WHERE biz_key = 'again4'")
	l.wait("the checkpoint to pass them", func() bool {
		now, err := l.admin().Checkpoint(ctx)
		testkit.Must(t, err)
		s, err := l.admin().Status(ctx)
		testkit.Must(t, err)
		return now.Position.Compare(s.Positions.Read) == 0 && now.Position.Compare(mark.Position) > 0
	})
	target := operator.Target{File: mark.Position.File, Pos: mark.Position.Offset, Republish: true, Limit: 3}
	_, err = l.admin().SetCheckpoint(ctx, target)
	var coded *operator.Error
	if !errors.As(err, &coded) || coded.Code != operator.CodeRefused || !strings.Contains(err.Error(), "more than 3 rows") {
		t.Errorf("over the limit: %v", err)
	}
	target.Limit, target.DryRun = 100, true
	if p, err := l.admin().SetCheckpoint(ctx, target); err != nil || p.Applied || p.Republish != 4 {
		t.Errorf("the preview: %+v, %v", p, err)
	}
	l.compare(append(keys("again", 5), "before", "failed")...)
	target.DryRun = false
	if p, err := l.admin().SetCheckpoint(ctx, target); err != nil || !p.Applied || p.Republished != 4 {
		t.Fatalf("the replay: %+v, %v", p, err)
	}
	l.wait("the copies", func() bool { return len(l.records()["again3"]) == 2 })
	for key, want := range map[string]int{"before": 1, "again0": 2, "again1": 2, "again2": 2, "again3": 2, "again4": 1, "failed": 1} {
		if got := len(l.records()[key]); got != want {
			t.Errorf("%s is there %d times, want %d", key, got, want)
		}
	}
	rest := l.number("SELECT COUNT(*) FROM t_local_message WHERE status <> 2")
	if rest != 1 {
		t.Errorf("%d rows are not SENT, want the FAILED one alone", rest)
	}
	_, err = l.admin().Pause(ctx, outbox.Pause{Reason: "a test"})
	testkit.Must(t, err)
	if _, err := l.admin().SetCheckpoint(ctx, target); err == nil || !strings.Contains(err.Error(), "0 of 4 rows were published again") {
		t.Errorf("while paused: %v", err)
	}
	changes, err := l.admin().Audit(ctx, 10)
	testkit.Must(t, err)
	if len(changes) != 3 || changes[0].Error == "" || changes[0].After != "0 published" || changes[2].After != "4 published" || changes[2].Unfinished {
		t.Errorf("recorded %+v", changes)
	}
}
