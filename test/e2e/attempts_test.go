package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// A06: while the server refuses every connection, in one way or another, all parts of the relay together make at most two attempts in a
// second, and their pauses grow. After the trouble the relay works. The relays of all cases wait at the same time.
func TestA06_AttemptsAreBounded(t *testing.T) {
	relay.Long(t)
	const attempts, perSecond = 20, 2 // of all connections: those of the reader, the sweep and the acknowledgements
	const grown = 4 * time.Second     // ten attempts with the first pauses take about 2 s; a slow machine makes pauses longer, and never shorter
	type trouble struct {
		*lab
		*front
		name string
	}
	var all []trouble
	for _, flavor := range testkit.Flavors() {
		for name, answer := range map[string][]byte{
			"closed":               nil,
			"too many connections": refusal(1040, "08004Too many connections"),
			"host blocked":         refusal(1129, "HY000Host is blocked because of many connection errors"),
			"access denied":        refusal(1045, "28000Access denied for user"),
			"shutting down":        refusal(1053, "08S01Server shutdown in progress"),
		} {
			l := newLab(t, testkit.SharedDatabase(t, flavor), frequentSweeps)
			f := newFront(t, l.db.Addr())
			l.source = f.Addr()
			l.start()
			l.commit("before")
			l.account("before")
			f.refuse(answer)
			all = append(all, trouble{l, f, string(flavor) + ", " + name})
		}
	}
	for _, l := range all {
		l.wait("the reader to notice: "+l.name, func() bool { return l.metric("reader_connected") == 0 })
		l.commit("meanwhile")
	}
	for _, l := range all {
		testkit.WaitFor(t, 2*time.Minute, "attempts: "+l.name, func() bool { return len(l.attempts()) >= attempts })
		at := l.attempts()[:attempts]
		took := at[attempts-1].Sub(at[0])
		late := at[attempts-1].Sub(at[attempts/2])
		t.Logf("%s: %d attempts in %v, the second half in %v", l.name, attempts, took, late)
		if late < grown {
			t.Errorf("%s: the pauses do not grow: the last %d attempts took %v", l.name, attempts/2, late)
		}
		if rate := (attempts - 1) / took.Seconds(); rate > perSecond {
			t.Errorf("%s: %.1f attempts in a second", l.name, rate)
		}
		l.serve()
	}
	for _, l := range all {
		testkit.WaitFor(t, time.Minute, "the relay to read again: "+l.name, func() bool { return l.metric("reader_connected") == 1 })
		l.commit("after")
		l.account("before", "meanwhile", "after")
	}
}

// A06: a server that accepts every session of the relay and kills it at once sees few of them in a second.
func TestA06_KilledSessionsAreBounded(t *testing.T) {
	relay.Long(t)
	const sessions, perSecond = 24, 8 // an attempt of the reader that gets through has several sessions
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor), frequentSweeps)
		l.user = "hunted"
		testkit.Must(t, l.db.CreateUser(context.Background(), l.user, "", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", "SELECT, UPDATE ON "+l.schema+".*"))
		t.Cleanup(func() { testkit.Exec(t, l.db.Root(), "DROP USER hunted") })
		f := newFront(t, l.db.Addr())
		l.source = f.Addr()
		l.start()
		f.count()
		for began := time.Now(); len(f.attempts()) < sessions; time.Sleep(10 * time.Millisecond) { // at once: before a session has done its work
			l.kill("USER = 'hunted'")
			if time.Since(began) > 5*time.Minute {
				t.Fatalf("%d sessions in five minutes", len(f.attempts()))
			}
		}
		at := f.attempts()
		rate := float64(len(at)-1) / at[len(at)-1].Sub(at[0]).Seconds()
		t.Logf("%d sessions, %.1f in a second", len(at), rate)
		if rate > perSecond {
			t.Errorf("%.1f sessions in a second", rate)
		}
		l.reading()
		l.commit("after")
		l.account("after")
	})
}

// refusal is the packet with which a server refuses a client instead of greeting it.
func refusal(code int, stateAndText string) []byte {
	payload := append([]byte{0xff, byte(code), byte(code >> 8), '#'}, stateAndText...)
	return append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, 0}, payload...)
}

// front is a proxy before a server, counts the connections, and refuses them on request.
type front struct {
	*testkit.Proxy

	mu      sync.Mutex
	refuses bool
	answer  []byte
	came    []time.Time
}

func newFront(t *testing.T, target string) *front {
	t.Helper()
	f := &front{}
	f.Proxy = testkit.NewProxyWith(t, "127.0.0.1", target, testkit.ProxyHooks{Admit: f.admit})
	return f
}

func (f *front) admit(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = append(f.came, time.Now())
	if f.refuses {
		_, _ = conn.Write(f.answer) // the client may be gone
	}
	return !f.refuses
}

// refuse ends all connections, answers new ones so, and counts from here.
func (f *front) refuse(answer []byte) {
	f.mu.Lock()
	f.refuses, f.answer, f.came = true, answer, nil
	f.mu.Unlock()
	f.Cut()
}

func (f *front) serve() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = false
}

// count counts from here.
func (f *front) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came = nil
}

// attempts are the times of the connection attempts.
func (f *front) attempts() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Time(nil), f.came...)
}
