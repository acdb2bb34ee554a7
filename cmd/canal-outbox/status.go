package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// errProblems is the end of a status that shows problems.
var errProblems = errors.New("the relay has problems")

func newStatus(c *cli) *cobra.Command {
	var watch, live, all bool
	var at string
	cmd := &cobra.Command{
		Use: "status", Short: "show whether the relay works, how far behind it is and what needs attention", Args: cobra.NoArgs,
		Long: `Shows the state of the running relay. The exit code is 0 when it works or stands by and 4 when there are
problems ("degraded" or "stuck"), so that a script needs no more than the code. With --live it
only asks whether the process can make progress, as /healthz does: a broker or a database that
is away is no reason to restart it. Counts of rows are sampled; the text says how long ago.`,
		Example: "  canal-outbox status\n  canal-outbox status --watch\n  canal-outbox status --live\n  canal-outbox status --all\n  canal-outbox status -o json | jq .source.lag_seconds",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				if watch || live || at != "" {
					return operator.Usagef("--all excludes --watch, --live and --at")
				}
				return c.statusOfAll(cmd.Context())
			}
			if at != "" {
				if watch || live {
					return operator.Usagef("--at excludes --watch and --live")
				}
				return c.statusAt(cmd.Context(), at)
			}
			client, err := c.client()
			switch {
			case err != nil:
				return err
			case watch && live:
				return operator.Usagef("--watch and --live exclude each other")
			case live:
				if err := client.Live(cmd.Context()); err != nil {
					return err
				}
				return c.done("%s", c.words.Text("the relay can make progress"))
			case watch:
				return c.watch(cmd.Context(), client)
			}
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.explain(s, func(w io.Writer) { writeStatus(w, s) }); err != nil {
				return err
			}
			if s.State != "working" && s.State != "standby" {
				return errProblems
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again each second, until interrupted; the exit code is 0")
	cmd.Flags().StringVar(&at, "at", "", "show what was measured at a time of the last day (2026-01-02T15:04:05Z, or 1h for an hour ago), with a running relay or without one")
	cmd.Flags().BoolVar(&all, "all", false, "a line for this relay and for each of admin.peers, those with problems first; the exit code is 4 when one has problems")
	cmd.Flags().BoolVar(&live, "live", false, "only ask whether the process can make progress")
	return cmd
}

// clearScreen moves to the top left corner and clears everything below (ECMA-48).
const clearScreen = "\x1b[H\x1b[J"

// watch repeats the status. In JSON each is one line.
func (c *cli) watch(ctx context.Context, client *admin.Client) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := client.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case c.format == formatJSON:
			err = json.NewEncoder(c.out).Encode(s)
		default:
			if _, err = io.WriteString(c.out, clearScreen); err == nil {
				err = c.explain(s, func(w io.Writer) { writeStatus(w, s) })
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// writeStatus writes the status as text.
func writeStatus(w io.Writer, s operator.Status) {
	line(w, "state\t%s (version %s, up %s)", s.State, s.Version, seconds(&s.UptimeSeconds))
	for _, p := range s.Problems {
		line(w, "  !\t%s", p)
	}
	line(w, "lease\t%s", leaseText(s.Lease))
	if s.Shadow != "" {
		line(w, "shadow\t%s", s.Shadow)
	}
	line(w, "source\t%s %s, reader %s", s.Source.Address, s.Source.Server, s.Source.State)
	if s.Source.Error != "" {
		line(w, "\t%s", s.Source.Error)
	}
	line(w, "lag\t%s, %s behind, last event %s ago", seconds(s.Source.LagSeconds), size(s.Source.BehindBytes), seconds(s.Source.LastEventSeconds))
	t := s.Throughput
	line(w, "rate\t%.1f/s, commit to acknowledgement p50 %s p99 %s", t.Rate, millis(t.LatencyP50), millis(t.LatencyP99))
	if s.CatchUp != nil {
		line(w, "catch up\t%s", catchUpText(s.CatchUp))
	}
	line(w, "totals\tpublished %d, retried %d, failed %d, left to the sweep %d", t.Published, t.Retried, t.Failed, t.Deferred)
	line(w, "in flight\t%d of %d messages, %s of %s, %d waiting for the table", s.InFlight.Messages, s.InFlight.MaxMessages,
		size(&s.InFlight.Bytes), size(&s.InFlight.MaxBytes), s.InFlight.AckPending)
	line(w, "broker\t%s", strings.TrimSpace(fmt.Sprintf("%s, breaker %s %s", s.Sink.Kind, s.Sink.Breaker, s.Sink.Reason)))
	for _, p := range s.Sink.SuspendedTopics {
		line(w, "  suspended\t%s: %s", p.Topic, p.Reason)
	}
	if s.WaitingKeys.Keys > 0 {
		line(w, "keys\t%d wait for an earlier row of theirs, with %d rows", s.WaitingKeys.Keys, s.WaitingKeys.Rows)
	}
	for _, k := range s.WaitingKeys.First {
		line(w, "  waits\t%s of %s, topic %s, for %s since %s: %s", k.Key, k.Table, k.Topic, k.MessageID, k.Since.Format(time.RFC3339), k.Reason)
	}
	line(w, "sweep\t%s", sweepText(s))
	if r := s.Reconcile; r != nil {
		line(w, "reconcile\tlast %s ago: %d missing, %d different, %d repeated %s", seconds(r.LastSeconds), r.Missing, r.Different, r.Repeated, r.Error)
	}
	if s.Retention != nil {
		line(w, "retention\t%s", retentionText(s.Retention))
	}
	line(w, "gaps\t%d not acknowledged", s.GapsOpen)
	for _, p := range []struct {
		name string
		at   outbox.Position
	}{
		{"server", s.Positions.Server},
		{"read", s.Positions.Read},
		{"offered", s.Positions.Offered},
		{"settled", s.Positions.Settled},
		{"checkpoint", s.Positions.Checkpoint},
	} {
		line(w, "%s\t%s", p.name, orDash(p.at.String()))
	}
	writeTables(w, s.Tables)
}

// catchUpText returns the estimated duration of the backlog.
func catchUpText(c *operator.CatchUp) string {
	more := ""
	if c.RowsAtLeast {
		more = "at least "
	}
	text := fmt.Sprintf("lag %s, %s%d rows are due", seconds(&c.LagSeconds), more, c.Rows)
	if c.LagPerSecond == nil || c.RowsPerSecond == nil {
		return "not known yet (" + text + ")"
	}
	text += fmt.Sprintf("; in each second %.1f s of lag and %.0f rows less", *c.LagPerSecond, *c.RowsPerSecond)
	if c.Seconds == nil {
		return "not in sight (" + text + ")"
	}
	return "in about " + seconds(c.Seconds) + " (" + text + ")"
}

// leaseText describes the mode of this relay among several.
func leaseText(l operator.LeaseStatus) string {
	text, since := l.State, " since "+l.Since.Local().Format("2006-01-02 15:04:05")
	switch l.State {
	case "standby":
		if l.Active != "" {
			text += " of " + l.Active
		}
		text += since
		if l.Active == "" && l.Why != "" {
			text += ", no active relay is known: " + l.Why
		}
	case "active":
		text += fmt.Sprintf("%s (term %d, valid for another %s)", since, l.Term, seconds(&l.ValidSeconds))
	case "lapsed":
		text += since
	case "off":
		text += ": no other relay can stand by (lease.enabled)"
	}
	if l.Error != "" {
		text += ": " + l.Error
	}
	return text
}

// sweepText returns the end of the last sweep, and the number of rows of all sweeps: the last one usually finds none.
func sweepText(s operator.Status) string {
	text := fmt.Sprintf("last %s ago, handed %d rows to the sink; published by sweeps since the start %d", seconds(s.Sweep.LastSeconds), s.Sweep.LastRows, s.Throughput.Swept)
	if s.Sweep.LastSeconds == nil {
		text = "none has ended yet"
	}
	if s.Sweep.Running {
		return "running, " + text
	}
	return text
}

// retentionText returns when old rows last left the tables, and how many.
func retentionText(r *operator.RetentionStatus) string {
	text := fmt.Sprintf("last pass %s ago, %d rows taken out", seconds(r.LastSeconds), r.Rows)
	switch {
	case r.Paused != "":
		return fmt.Sprintf("waits, %d rows taken out so far: %s", r.Rows, r.Paused)
	case r.Running:
		return fmt.Sprintf("running, %d rows taken out so far", r.Rows)
	case r.Error != "":
		return text + ": " + r.Error
	case r.LastSeconds == nil:
		return fmt.Sprintf("no pass has come to its end yet, %d rows taken out", r.Rows)
	}
	return text
}

func writeTables(w io.Writer, tables []operator.TableStatus) {
	for _, t := range tables {
		var rows []string
		states := []string{"pending", "delayed", "sending", "sent", "failed", "held"}
		for _, name := range slices.Sorted(maps.Keys(t.Rows)) { // those of the consumers
			if !slices.Contains(states, name) {
				states = append(states, name)
			}
		}
		for _, state := range states {
			if n, ok := t.Rows[state]; ok {
				about := map[string]string{"estimate": "about ", "at_least": "at least "}[t.Kinds[state]]
				rows = append(rows, fmt.Sprintf("%s %s%d", state, about, n))
			}
		}
		for _, age := range []struct {
			name string
			of   *float64
		}{{"oldest pending", t.OldestPendingSeconds}, {"oldest claim", t.OldestSendingSeconds}, {"longest wait for a retry", t.LongestRetrySeconds}} {
			if age.of != nil {
				rows = append(rows, age.name+" "+seconds(age.of))
			}
		}
		if t.FailedEverySeconds != nil {
			rows = append(rows, fmt.Sprintf("FAILED ones are tried again every %s, %d since the start", seconds(t.FailedEverySeconds), t.FailedRetried))
		}
		if r := t.Redelivery; r != nil {
			rows = append(rows, fmt.Sprintf("SENT ones that are not %s go out again after %s, %d since the start", r.Until, seconds(&r.AfterSeconds), r.Redelivered))
		}
		line(w, "%s\t%s (counted %s ago)", t.Name, strings.Join(rows, ", "), seconds(t.SampledSeconds))
	}
}

// seconds formats a duration with three digits below a minute, and to the second above.
func seconds(s *float64) string {
	switch {
	case s == nil:
		return "-"
	case *s < 1:
		return millis(new(*s * 1000))
	case *s < 60:
		return strconv.FormatFloat(digits(*s), 'f', -1, 64) + "s"
	}
	return time.Duration(*s * float64(time.Second)).Truncate(time.Second).String()
}

func millis(ms *float64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms >= 1000:
		return seconds(new(*ms / 1000))
	}
	return strconv.FormatFloat(digits(max(0, *ms)), 'f', -1, 64) + "ms"
}

// digits rounds to three digits, or to thousandths.
func digits(x float64) float64 {
	scale := 1000.0
	for limit := 1.0; x >= limit && scale > 1; limit *= 10 {
		scale /= 10
	}
	return math.Round(x*max(scale, 1)) / max(scale, 1)
}

func size(n *int64) string {
	if n == nil {
		return "-"
	}
	value, unit := float64(*n), 0
	for value >= 1024 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	return fmt.Sprintf("%.4g%s", value, []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit])
}
