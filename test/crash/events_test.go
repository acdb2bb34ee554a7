package crash

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

// samples is the number of tested positions in the script's range of the log, fewer on the layouts that have less.
const (
	samples       = 9
	shortSamples  = 4 // with -short
	layoutSamples = 3
)

// perAccount is the number of breaks per account, more when there are not enough topics.
const perAccount = 25

// eachBreak writes the script repeatedly and calls f each time, with a channel that closes when all connections to the database
// have been cut after the next k-th part of the bytes that the server sends for the script. With backlog the script is written
// before the relay starts, so that its rows are in the recovery window; else they arrive while the relay reads.
func (b *bed) eachBreak(t *testing.T, backlog bool, f func(t *testing.T, cut <-chan struct{})) {
	size := b.scriptSize(t)
	b.relay.Start(t)
	b.sent(t)
	steps := samples
	if testing.Short() {
		steps = shortSamples
	}
	if b.table.Layout != nil {
		steps = layoutSamples
	}
	if *long {
		steps = int(size) / 200 // few events are shorter
	}
	each := max(perAccount, steps/topics+1)
	for k := 1; k <= steps; k++ {
		if k%each == 0 {
			b.renew(t, k/each)
		}
		ok := t.Run(fmt.Sprintf("%02d_of_%02d", k, steps), func(t *testing.T) {
			n := size * int64(k) / int64(steps)
			if backlog {
				b.stop(t)
				b.script(t)
				cut := b.proxy.CutAfter(n)
				b.relay.Launch(t)
				f(t, cut)
				return
			}
			if !b.relay.Running() {
				b.relay.Start(t)
			}
			cut := b.proxy.CutAfter(n)
			b.script(t)
			f(t, cut)
		})
		if !ok {
			return
		}
	}
	if b.cuts < steps/2 {
		t.Errorf("only %d of %d breaks came before all was sent: this tested nothing", b.cuts, steps)
	}
}

// writers blocks the scripts of other beds while the size of one is measured: some beds share a server.
var writers sync.RWMutex

// scriptSize writes the script and returns the growth of the server's log.
func (b *bed) scriptSize(t *testing.T) int64 {
	t.Helper()
	writers.Lock()
	defer writers.Unlock()
	from := relay.LogEnd(t, b.sql).Offset
	b.writeScript(t)
	return int64(relay.LogEnd(t, b.sql).Offset - from)
}

// await returns when the cut has happened or there is nothing left to cut.
func (b *bed) await(t *testing.T, cut <-chan struct{}) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		select {
		case <-cut:
			b.cuts++
			return
		case <-time.After(20 * time.Millisecond):
		}
		if b.allSent(t) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("neither a cut nor all rows SENT")
		}
	}
}

func modes(t *testing.T, f func(t *testing.T, b *bed, backlog bool)) {
	t.Run("reading", func(t *testing.T) { beds(t, func(t *testing.T, b *bed) { f(t, b, false) }) })
	t.Run("catching_up", func(t *testing.T) { beds(t, func(t *testing.T, b *bed) { f(t, b, true) }) })
}

// A connection that breaks after any event: no loss, no duplicate, the same order (A02, A04, A20, A22, A25, A32, A39, A42, A61).
func TestA02_A20_A22_A25_A32_A39_A42_A61_CutAfterEachEvent(t *testing.T) {
	modes(t, func(t *testing.T, b *bed, backlog bool) {
		b.eachBreak(t, backlog, func(t *testing.T, cut <-chan struct{}) {
			b.await(t, cut)
			b.noCopies(t, b.account(t))
		})
	})
}

// SIGKILL after any event, and the connections cut there, so that the relay cannot have read further.
func TestA01_A02_A20_KillAfterEachEvent(t *testing.T) {
	modes(t, func(t *testing.T, b *bed, backlog bool) {
		var before relay.Account
		b.eachBreak(t, backlog, func(t *testing.T, cut <-chan struct{}) {
			b.await(t, cut)
			b.lateBeforeKill(t)
			known := b.kill(t)
			account := b.afterKill(t)
			b.onlyUnknown(t, before, account, known)
			before = account
		})
	})
}

// SIGTERM after any event: the stop has no connection at first, and nothing is sent twice.
func TestP3_TerminateAfterEachEvent(t *testing.T) {
	modes(t, func(t *testing.T, b *bed, backlog bool) {
		b.eachBreak(t, backlog, func(t *testing.T, cut <-chan struct{}) {
			b.await(t, cut)
			b.stop(t)
			b.relay.Start(t)
			b.noCopies(t, b.account(t))
		})
	})
}
