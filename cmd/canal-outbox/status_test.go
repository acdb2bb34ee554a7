package main

import (
	"errors"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// A script needs only the exit code: problems do not affect liveness, which --live reports.
func TestStatusTellsByItsCode(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	for _, c := range []struct {
		state string
		stuck error
		args  []string
		code  int
	}{
		{"working", nil, nil, exitOK},
		{"degraded", nil, nil, exitProblems},
		{"stuck", errors.New("no progress"), nil, exitProblems},
		{"degraded", nil, []string{"--live"}, exitOK},
		{"stuck", errors.New("no progress"), []string{"--live"}, exitFailure},
		{"working", nil, []string{"--live", "--watch"}, exitUsage},
	} {
		d.state, d.stuck = c.state, c.stuck
		if got := run("", append([]string{"status", "-c", file}, c.args...)...); got.code != c.code || c.code == exitProblems && got.err != "" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// Durations are short: no exponents, no nanoseconds, nothing below zero.
func TestSpansOfTime(t *testing.T) {
	for ms, want := range map[float64]string{
		-3: "0ms", 0: "0ms", 0.00012: "0ms", 0.1234: "0.123ms", 1.25: "1.25ms", 12.345: "12.3ms", 123.4: "123ms", 999.9: "1000ms", 1234: "1.23s",
		56_500: "56.5s", 61_000: "1m1s", 3_661_000: "1h1m1s",
	} {
		if got := millis(&ms); got != want {
			t.Errorf("%v ms: %s, want %s", ms, got, want)
		}
	}
}

// G11, G33: sweeps that fail, and rows that a statement leaves out, are problems: the exit code of `status` says so.
func TestG11_G33_FailingSweepsAreTheExitCode(t *testing.T) {
	file, dir := configure(t)
	d := start(t, dir)
	for problem, want := range map[string]int{
		"": exitOK,
		"sweeps fail since 02:03:04: Unknown column 'body'":                   exitProblems,
		"1 row of shop.t cannot be handled, the last one is '': an empty key": exitProblems,
	} {
		st, lines := operator.Status{}, []string{}
		if problem != "" {
			lines = append(lines, problem)
		}
		st.Source.State = "streaming"
		operator.Judge(&st, nil, lines...)
		d.state = st.State
		if got := run("", "status", "-c", file); got.code != want {
			t.Errorf("%q: state %s, %+v", problem, st.State, got)
		}
	}
}
