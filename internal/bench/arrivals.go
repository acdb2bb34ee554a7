package bench

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// bizType is in front of the number of a row, in its message id.
const bizType = "bench"

// arrivals are the messages that the broker has acknowledged, by the number of their row.
type arrivals struct {
	mu       sync.Mutex
	first    []time.Time
	rows     int
	repeated int
}

// note takes results, from any goroutine.
func (a *arrivals) note(results []sink.Result) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range results {
		if r.Class != outbox.ClassNone {
			continue
		}
		_, number, _ := strings.Cut(r.Message.MessageID, ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			continue // a row of another writer into this table
		}
		for len(a.first) <= n {
			a.first = append(a.first, time.Time{})
		}
		if !a.first[n].IsZero() {
			a.repeated++
			continue
		}
		a.first[n] = now
		a.rows++
	}
}

// counts returns the rows whose message was acknowledged, and the messages that were so again.
func (a *arrivals) counts() (rows, repeated int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rows, a.repeated
}

// at is when the message of a row was acknowledged for the first time.
func (a *arrivals) at(n int) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first[n]
}

// span is from the first to the last acknowledgement of the rows from a number on.
func (a *arrivals) span(n int) (from, to time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.first[n:] {
		if from.IsZero() || at.Before(from) {
			from = at
		}
		if at.After(to) {
			to = at
		}
	}
	return from, to
}
