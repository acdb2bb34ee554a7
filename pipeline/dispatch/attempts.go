package dispatch

import (
	"math"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// attempts says how often a row is sent, and when.
type attempts struct {
	cfg      *Config
	random   func() float64
	reported reported
}

// rule is what holds for a message: its row's limit goes before its business type, that before its topic, that before its table.
func (a *attempts) rule(m *outbox.Message) outbox.Retry {
	r := outbox.Retry{Max: a.cfg.MaxRetry, Backoff: a.cfg.Backoff}.Override(a.cfg.Tables[m.Table]).Override(a.cfg.Topics[m.Topic])
	if m.BizType != "" {
		r = r.Override(a.cfg.Types[m.BizType])
	}
	if m.MaxRetry >= 0 {
		r.Max = m.MaxRetry
	}
	return r
}

// spent reports whether a refusal is the row's last.
func (a *attempts) spent(rule outbox.Retry, c *outbox.Completion) bool {
	return rule.Spent(c.RetryCount+1) || rule.Endless && a.reported.has(c.Identity)
}

// fail ends a row's attempts. A table without FAILED tries the row again after the longest wait, and reports it once.
func (a *attempts) fail(c *outbox.Completion, m *outbox.Message) {
	rule := a.rule(m)
	c.Action, c.Delay = outbox.ActionFail, rule.Backoff.Delay(math.MaxInt, a.random())
	c.Reported = rule.Endless && (rule.Spent(c.RetryCount) || !a.reported.add(c.Identity))
	c.Key, c.BizType, c.LogOnly = m.Key, m.BizType, m.LogOnly
}

// maxReported bounds what is remembered of rows that cannot be FAILED.
const maxReported = 100_000

// reported remembers which rows of tables without a code for FAILED were reported as failed, so that each is reported once and waits for
// the longest step from then on. It keeps the newest half of maxReported and the half before; what it forgets, and what a restart
// forgets, is reported once more unless the limit of its retries lies behind it. A row that is SENT later stays in it until then.
type reported struct{ newer, before map[outbox.Identity]struct{} }

func (r *reported) has(id outbox.Identity) bool {
	_, newer := r.newer[id]
	_, before := r.before[id]
	return newer || before
}

// add reports whether the row is reported for the first time.
func (r *reported) add(id outbox.Identity) bool {
	if r.has(id) {
		return false
	}
	if r.newer == nil || len(r.newer) >= maxReported/2 {
		r.newer, r.before = map[outbox.Identity]struct{}{}, r.newer
	}
	r.newer[id] = struct{}{}
	return true
}
