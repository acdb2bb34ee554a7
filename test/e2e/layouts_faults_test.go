package e2e

import (
	"os"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

const burst = 10 // rows of each layout in a fault

// killed ends the process amid a burst: no row is lost.
func (l *everyLayout) killed(from int) {
	l.t.Helper()
	for n := range burst {
		if n == burst/2 {
			l.Kill()
		}
		l.insert(from+n, topics[0], false)
	}
	l.Start(l.t)
	l.allSent(from)
}

// outages has the broker away in each way there is: no row loses an attempt, and none comes twice.
func (l *everyLayout) outages(from int, cluster *fakekafka.Cluster) {
	l.t.Helper()
	for name, trouble := range outages(l.t, cluster) {
		end := trouble()
		for n := range burst {
			l.insert(from+n, topics[0], n%2 == 0)
		}
		l.wait("the breaker to open: "+name, func() bool { return l.breaker() != "closed" })
		end()
		l.allSent(from)
		l.noCopies(from, burst)
		for _, layout := range l.all {
			if layout.Has("attempts") {
				l.is(layout, from, "sent", "retry_count = 0")
				l.is(layout, from+1, "sent", "retry_count = 0")
			}
		}
		from += burst
	}
}

// purged takes the log away while the relay is down: the sweep brings its rows, once, and the gap is on record. Then the log is followed
// again.
func (l *everyLayout) purged(from int) {
	l.t.Helper()
	l.stopInTime()
	for n := range burst {
		l.insert(from+n, topics[0], false)
	}
	testkit.Must(l.t, l.db.Purge(l.t.Context()))
	l.Start(l.t)
	l.allSent(from)
	l.noCopies(from, burst)
	gaps, err := l.Client().Gaps(l.t.Context())
	testkit.Must(l.t, err)
	if len(gaps) != 2 || gaps[1].Cause != outbox.GapPurged {
		l.t.Errorf("gaps %+v, want that of the first start and one for the purged log", gaps)
	}
	l.insert(from+burst, topics[0], false)
	for _, layout := range l.all {
		l.is(layout, from+burst, "sent", layout.Written)
	}
	if paths := l.metricBy("messages_total", "path"); paths["binlog"] != float64(len(l.all)) || paths["sweep"] != float64(burst*len(l.all)) {
		l.t.Errorf("rows went by %v", paths)
	}
}

// noCopies shows that each of n rows came once.
func (l *everyLayout) noCopies(from, rows int) {
	l.t.Helper()
	got, want := map[string]int{}, map[string]int{}
	for _, r := range relay.ReadAll(l.t, l.broker, topics...) {
		got[r.Topic+" "+r.MessageID+" "+string(r.Body)]++
	}
	for _, layout := range l.all {
		for n := range rows {
			want[message(layout, from+n, topics[0])]++
		}
	}
	for what, n := range want {
		if got[what] != n {
			l.t.Errorf("%s came %d times, want %d", what, got[what], n)
		}
	}
}

// lesser are the layouts whose tables have less than the relay's own, each in another way: words, no claim, a text key.
func lesser() (list []*layouts.Layout) {
	for _, layout := range layouts.All() {
		if layout.Name == "B" || layout.Name == "C" || layout.Name == "D" {
			list = append(list, layout)
		}
	}
	return list
}

// lost takes the state directory away: a full sweep finds what was written meanwhile, and what waited in the directory is due.
func (l *everyLayout) lost(from int) {
	l.t.Helper()
	testkit.Must(l.t, os.RemoveAll(l.StateDir()))
	for n := range burst {
		l.insert(from+n, topics[0], n%2 == 0)
	}
	l.Start(l.t)
	l.allSent(from)
	for _, layout := range l.all {
		if !layout.Has("due") {
			l.is(layout, 4, "sent", layout.Written)
		}
	}
}

// allSent waits until the rows of a burst are sent, and shows that the broker has each of them.
func (l *everyLayout) allSent(from int) {
	l.t.Helper()
	for _, layout := range l.all {
		for n := range burst {
			l.is(layout, from+n, "sent", layout.Written)
		}
	}
	got := map[string]int{}
	for _, r := range relay.ReadAll(l.t, l.broker, topics...) {
		got[r.Topic+" "+r.MessageID+" "+string(r.Body)]++
	}
	for _, layout := range l.all {
		for n := range burst {
			if what := message(layout, from+n, topics[0]); got[what] == 0 {
				l.t.Errorf("layout %s: %s is lost", layout.Name, what)
			}
		}
	}
}
