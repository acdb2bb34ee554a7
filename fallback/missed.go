package fallback

import "time"

// Rows that the log never showed as inserted look like any other row of the table. A sweep knows them by exclusion: nothing
// else left a row PENDING, without a due time, not tried and without an owner.
//
// Such a row that the log did show was deferred, or refused, and Flow.ActivityEpoch has told so. A sweep over rows of any age that
// begins afterwards finds it, however old the row says it is. It finds it later only if the server shows a commit later than
// it logs it; so the exclusion needs time as well.

// lateCommit is how much longer than two intervals and the threshold a server may take to show what it has logged: more than
// a semi-synchronous source waits for its replica by default.
const lateCommit = 15 * time.Second

// quiet remembers since when nothing else explains a row.
type quiet struct {
	activity uint64
	since    time.Time // activity has had this value since; zero: never looked
	clean    bool      // a sweep over rows of any age began after that, was complete and left no row alone
}

// undisturbed reports whether activity is what it was at the last call.
func (c *quiet) undisturbed(now time.Time, activity uint64) bool {
	if !c.since.IsZero() && activity == c.activity {
		return true
	}
	*c = quiet{activity: activity, since: now}
	return false
}

// countMissed draws the conclusion from a sweep that was complete.
func (s *Sweeper) countMissed(r *round, began, now time.Time) {
	c := &s.quiet
	switch {
	case !c.undisturbed(now, s.flow.ActivityEpoch()):
	case r.suspended:
		c.clean = false
	case r.zero:
		c.clean = true
	case c.clean && began.Sub(c.since) >= s.cfg.Threshold+2*s.cfg.Interval+lateCommit:
		s.flow.Missed(r.undue)
	}
}
