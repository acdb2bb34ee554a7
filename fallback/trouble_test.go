package fallback

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// G33, G11: failing sweeps are a trouble with its cause within seconds, from the second failure on, until one is complete.
func TestG33_FailingSweepsAreATrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(old(1))
		s := start(t, w)
		if _, err := s.Trouble(); err != nil {
			t.Fatalf("a trouble before a failure: %v", err)
		}
		failed := errors.New("Error 1054: Unknown column 'message_body' in 'field list'")
		set(w, &w.onDue, func() error { return failed })
		s.Trigger()
		time.Sleep(10 * time.Second)
		since, err := s.Trouble()
		if err == nil || !strings.Contains(err.Error(), "message_body") || !strings.Contains(err.Error(), shop) || time.Since(since) > 10*time.Second || since.IsZero() {
			t.Fatalf("trouble %v since %v", err, since)
		}
		set(w, &w.onDue, nil)
		time.Sleep(time.Minute)
		if _, err := s.Trouble(); err != nil {
			t.Errorf("a trouble after a complete sweep: %v", err)
		}
	})
}

// G38: a sweep reports that it has sent rows to the sink, and not that they were published: the broker has not answered.
func TestG38_ASweepDoesNotSayThatRowsWerePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newWorld(old(1)))
		b.stop()
		if b.logs.FilterMessage("sweep handed rows to the sink").Len() != 1 {
			t.Errorf("logs %v", b.logs.All())
		}
		for _, line := range b.logs.All() {
			if strings.Contains(line.Message, "published") {
				t.Errorf("it says %q", line.Message)
			}
		}
	})
}
