package canal

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// damage makes the second event of the transaction at a position unreadable for the server, which answers with error 1236. The
// returned function repairs the file.
func (l *lab) damage(at outbox.Position) (repair func()) {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.db.Dir(), "data", at.File))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("the file %s: %v, %v", at.File, found, err)
	}
	file, err := os.OpenFile(found[0], os.O_RDWR, 0)
	testkit.Must(l.t, err)
	l.t.Cleanup(func() { testkit.Must(l.t, file.Close()) })
	size := make([]byte, 4)
	_, err = file.ReadAt(size, int64(at.Offset)+9) // the event's length in its header
	testkit.Must(l.t, err)
	second := int64(at.Offset) + int64(binary.LittleEndian.Uint32(size)) + 9
	_, err = file.ReadAt(size, second)
	testkit.Must(l.t, err)
	write := func(b []byte) {
		_, err := file.WriteAt(b, second)
		testkit.Must(l.t, err)
	}
	write([]byte{1, 0, 0, 0})
	return func() { write(size) }
}

// An event that the server cannot read may be readable later: the reader tries again, reports where it is stuck and why, and
// loses nothing when the cause has passed. MySQL sends a heartbeat whenever it has skipped transactions that the reader has, so
// each attempt begins with one: it is no sign of an idle log, neither for the lag nor for the count of attempts.
func TestG14_G15_StuckAtAnEventUntilTheCausePasses(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "column names in its log")
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor}))
		from := l.end()
		l.insert("a")
		l.insert("b")
		at := l.end()
		l.insert("c")
		l.exec("FLUSH BINARY LOGS")
		l.insert("d")
		repair := l.damage(at)
		l.launch(from)
		l.published(2)
		attempts := func() float64 { return metric(t, l.reg, "canal_outbox_reconnects_total") }
		l.wait("ten attempts", func() bool { return attempts() > 10 })
		l.wait("the lag to grow", func() bool { return l.reader.State().Lag > 10*l.cfg.Heartbeat })
		s := l.reader.State()
		if s.Stuck == nil || s.Stuck.At.File != at.File || s.Stuck.At.Offset != at.Offset || s.Stuck.Attempts < 2 || s.Connected {
			t.Fatalf("state %+v, stuck %+v, want it at %s", s, s.Stuck, at)
		}
		for _, words := range []string{at.File, "1236", "disk", "checkpoint set"} {
			if !strings.Contains(s.Error, words) {
				t.Errorf("%q is not in %q", words, s.Error)
			}
		}
		if metric(t, l.reg, "canal_outbox_reader_stuck_seconds") <= 0 {
			t.Error("the metric does not show it")
		}
		if gaps := l.rec.holes(); len(gaps) > 0 {
			t.Fatalf("gaps %+v", gaps)
		}
		l.rec.mu.Lock()
		if idle := l.rec.idle; !idle.IsZero() {
			t.Errorf("the log was called idle at %s", idle)
		}
		l.rec.mu.Unlock()
		repair()
		if got := joined(l.published(4)); got != "a,b,c,d" {
			t.Fatalf("published %s", got)
		}
		l.caughtUp()
		l.noLag()
		if s := l.reader.State(); s.Stuck != nil || !s.Connected || len(l.rec.holes()) > 0 || metric(t, l.reg, "canal_outbox_reader_stuck_seconds") != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}
