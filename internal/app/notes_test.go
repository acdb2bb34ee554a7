package app

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// What a row forgets once it is SENT is noted with the relay and the cause, and survives a restart.
func TestG44_TracesKeepFailuresAndSecondSends(t *testing.T) {
	dir := t.TempDir()
	row := outbox.Identity{Table: "shop.t", ID: "7", MessageID: "order:7"}
	other := outbox.Identity{Table: "shop.t", ID: "7", MessageID: "order:8"}
	n := newNotes(dir, "host-a:/state", zap.NewNop())
	n.take([]outbox.Completion{
		{Identity: row, Action: outbox.ActionRetry, Class: outbox.ClassRefused, Reason: "no"},
		{Identity: other, Action: outbox.ActionRetry, Class: outbox.ClassRefused, Reason: "other"},
	})
	n.take([]outbox.Completion{{Identity: row, Action: outbox.ActionFail, Class: outbox.ClassPermanent, Reason: "too large", RetryCount: 1}})
	n.person([]outbox.Identity{row}, "retried", "by ann: messages retry")
	again := newNotes(dir, "host-b:/state", zap.NewNop())
	again.take([]outbox.Completion{{Identity: row, Action: outbox.ActionMarkSent, Path: outbox.PathSweep, Sends: 2, TakenOver: true}})
	events, err := again.of(row)
	if err != nil || len(events) != 4 {
		t.Fatalf("%+v, %v", events, err)
	}
	for i, want := range []string{
		"refused: attempt 1: refused: no; relay host-a", "failed: after attempt 2: permanent: too large; relay host-a",
		"retried: by ann: messages retry; relay host-a",
		"sent: found by a sweep, after the claim of another process; handed to the broker 2 times, because an answer was missing; relay host-b",
	} {
		if got := events[i].What + ": " + events[i].Detail; !strings.HasPrefix(got, want) || events[i].At == nil {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
