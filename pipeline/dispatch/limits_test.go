package dispatch_test

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/pipeline/flowtest"
)

// The refusal that reaches a limit of sends fails the row; a limit of retries lets one more go out. The row's own column counts the same.
func TestG20_LimitsOfSendsAndOfRetries(t *testing.T) {
	cfg := Config{MaxRetry: 5, Tables: map[string]outbox.Retry{"shop.sends": {Sends: true}, "shop.retries": {}}}
	run(t, cfg, func(b *bench) {
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: outbox.ClassRefused, Reason: "no"})
		refused := func(n, count int, table string, own int) {
			b.OfferRows(flowtest.Row(n, func(m *outbox.Message) { m.RetryCount, m.Table, m.MaxRetry = count, table, own }))
		}
		refused(1, 3, "shop.sends", -1)
		refused(2, 4, "shop.sends", -1)
		refused(3, 4, "shop.retries", -1)
		refused(4, 5, "shop.retries", -1)
		refused(5, 1, "shop.sends", 2)
		refused(6, 1, "shop.retries", 2)
		b.WantCompletions("1 retry", "2 failed", "3 retry", "4 failed", "5 failed", "6 retry")
	})
}

// A row that cannot be FAILED is reported once, and waits for the longest step from then on, whatever the next refusals are. Behind its
// limit it is not reported after a restart either.
func TestG21_RowThatCannotBeFailedIsReportedOnce(t *testing.T) {
	steps := outbox.Backoff{Schedule: []time.Duration{time.Minute, time.Hour, 2 * time.Hour}, Spread: -1}
	cfg := Config{Tables: map[string]outbox.Retry{"shop.t": {Max: 5, Endless: true, Backoff: steps}}}
	want := func(b *bench, n, count int, class outbox.Class, action outbox.Action, delay time.Duration, reported bool) {
		t.Helper()
		b.Sink.Answer = flowtest.Always(outbox.Outcome{Class: class, Reason: "no"})
		b.OfferRows(flowtest.Row(n, func(m *outbox.Message) { m.RetryCount, m.Table = count, "shop.t" }))
		c := b.Acks.Take()
		if len(c) != 1 || c[0].Action != action || c[0].Delay != delay || c[0].Reported != reported {
			t.Errorf("row %d, refused %d times: %+v", n, count, c)
		}
		b.Tracker.Settled(c)
		b.Tracker.Written(c)
	}
	run(t, cfg, func(b *bench) {
		want(b, 1, 4, outbox.ClassRefused, outbox.ActionRetry, 2*time.Hour, false)
		want(b, 1, 5, outbox.ClassRefused, outbox.ActionFail, 2*time.Hour, false)
		want(b, 1, 6, outbox.ClassRefused, outbox.ActionFail, 2*time.Hour, true)
		want(b, 2, 0, outbox.ClassPermanent, outbox.ActionFail, 2*time.Hour, false)
		want(b, 2, 1, outbox.ClassRefused, outbox.ActionFail, 2*time.Hour, true)
		want(b, 2, 2, outbox.ClassPermanent, outbox.ActionFail, 2*time.Hour, true)
	})
	run(t, cfg, func(b *bench) { // another process
		want(b, 1, 7, outbox.ClassRefused, outbox.ActionFail, 2*time.Hour, true)
		want(b, 3, 0, outbox.ClassRefused, outbox.ActionRetry, time.Minute, false)
	})
}
