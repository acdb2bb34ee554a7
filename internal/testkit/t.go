package testkit

import (
	"context"
	"database/sql"
	"runtime/debug"
	"slices"
	"time"
)

// T is what testkit needs of a *testing.T, *testing.B or *rapid.T, kept small so that the demo can bring its own.
type T interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
}

// poll is the pause between two looks at a condition: short against any server's reaction, long against a CPU's.
const (
	poll    = 10 * time.Millisecond
	maxPoll = 100 * time.Millisecond
)

// leastPatience is the shortest time that WaitFor waits. A deadline only ends a test that hangs, and a loaded machine is slow:
// a shorter deadline of the caller says how long the wait takes on a quiet machine.
const leastPatience = 8 * time.Minute

// WaitFor looks at condition every few milliseconds until it is true. It fails the test when the condition is still false after
// the deadline and after leastPatience. what completes the sentence "timed out waiting for ...".
func WaitFor(t T, deadline time.Duration, what string, condition func() bool) {
	t.Helper()
	deadline = max(deadline, leastPatience)
	began := time.Now()
	for !condition() {
		waited := time.Since(began)
		if waited > deadline {
			t.Fatalf("timed out after %v waiting for %s", deadline, what)
		}
		// What takes long is looked at less often: a tenth of the wait is lost at most, and less of the CPU.
		time.Sleep(min(max(poll, waited/10), maxPoll))
	}
}

// pause waits a little between two attempts, or returns the reason of ctx for giving up.
func pause(ctx context.Context) error {
	select {
	case <-time.After(poll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RaceDetector says whether the program was built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Must fails the test when err is not nil.
func Must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Exec runs one statement and fails the test when the server refuses it.
func Exec(t T, db *sql.DB, query string, args ...any) sql.Result {
	t.Helper()
	result, err := db.ExecContext(context.Background(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return result
}
