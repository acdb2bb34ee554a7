package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func newStatus(c *cli) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "status", Short: "show whether the daemon works, how far behind it is and what is stuck", Args: cobra.NoArgs,
		Example: "  canal-outbox status\n  canal-outbox status --watch\n  canal-outbox status -o json | jq .source.lag_seconds",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			if watch {
				return c.watch(cmd.Context(), client)
			}
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			return c.show(s, func(w io.Writer) { writeStatus(w, s) })
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again each second, until interrupted")
	return cmd
}

// clearScreen moves to the top left corner and clears what is below (ECMA-48).
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
				err = c.show(s, func(w io.Writer) { writeStatus(w, s) })
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

// writeStatus is the one screen.
func writeStatus(w io.Writer, s admin.Status) {
	line(w, "state\t%s (version %s, up %s)", s.State, s.Version, seconds(&s.UptimeSeconds))
	for _, p := range s.Problems {
		line(w, "  !\t%s", p)
	}
	line(w, "source\t%s %s, reader %s", s.Source.Address, s.Source.Server, s.Source.State)
	if s.Source.Error != "" {
		line(w, "\t%s", s.Source.Error)
	}
	line(w, "lag\t%s, %s behind, last event %s ago", seconds(s.Source.LagSeconds), size(s.Source.BehindBytes), seconds(s.Source.LastEventSeconds))
	t := s.Throughput
	line(w, "rate\t%.1f/s, commit to acknowledgement p50 %s p99 %s", t.Rate, millis(t.LatencyP50), millis(t.LatencyP99))
	line(w, "totals\tpublished %d, retried %d, failed %d, left to the sweep %d", t.Published, t.Retried, t.Failed, t.Deferred)
	line(w, "in flight\t%d of %d messages, %s of %s, %d waiting for the table", s.InFlight.Messages, s.InFlight.MaxMessages,
		size(&s.InFlight.Bytes), size(&s.InFlight.MaxBytes), s.InFlight.AckPending)
	line(w, "broker\t%s", strings.TrimSpace(fmt.Sprintf("%s, breaker %s %s", s.Sink.Kind, s.Sink.Breaker, s.Sink.Reason)))
	for _, p := range s.Sink.SuspendedTopics {
		line(w, "  suspended\t%s: %s", p.Topic, p.Reason)
	}
	last := "never"
	if s.Sweep.LastSeconds != nil {
		last = fmt.Sprintf("%s ago, %d rows", seconds(s.Sweep.LastSeconds), s.Sweep.LastRows)
	}
	line(w, "sweep\t%s%s", map[bool]string{true: "running, last ", false: ""}[s.Sweep.Running], last)
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

func writeTables(w io.Writer, tables []admin.TableStatus) {
	for _, t := range tables {
		var rows []string
		for _, state := range []string{"pending", "delayed", "sending", "sent", "failed", "held"} {
			if n, ok := t.Rows[state]; ok {
				rows = append(rows, fmt.Sprintf("%s %d", state, n))
			}
		}
		if t.OldestPendingSeconds != nil {
			rows = append(rows, "oldest pending "+seconds(t.OldestPendingSeconds))
		}
		line(w, "%s\t%s", t.Name, strings.Join(slices.Compact(rows), ", "))
	}
}

func seconds(s *float64) string {
	switch {
	case s == nil:
		return "-"
	case *s < 10:
		return fmt.Sprintf("%.2gs", *s)
	}
	return time.Duration(*s * float64(time.Second)).Truncate(time.Second).String()
}

func millis(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.3gms", *ms)
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
