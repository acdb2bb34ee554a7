package e2e

import (
	"context"
	"slices"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// gaps are the recorded gaps but the first start, which is how every relay begins.
func (l *lab) gaps() (causes []string) {
	l.t.Helper()
	var all []outbox.Gap
	l.wait("an answer about the gaps", func() (answered bool) {
		var err error
		if all, err = l.admin().Gaps(context.Background()); err == nil {
			return true
		}
		select {
		case why := <-l.ended:
			l.cancel = nil
			l.t.Fatalf("%v: the relay ended with: %v", err, why)
		default: // one that has lost the lease begins again, and its socket with it
		}
		return false
	})
	for _, g := range all {
		if g.Cause != "first_start" {
			causes = append(causes, string(g.Cause))
		}
	}
	return causes
}

func (l *lab) wantGaps(want ...string) {
	l.t.Helper()
	if got := l.gaps(); !slices.Equal(got, want) {
		l.t.Errorf("gaps %q, want %q", got, want)
	}
}
