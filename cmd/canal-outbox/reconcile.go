package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/reconcile"
)

// errDifferences is returned by a comparison that found differences.
var errDifferences = errors.New("tables and topics are not equal")

func newReconcile(c *cli) *cobra.Command {
	var opts app.ReconcileOptions
	cmd := &cobra.Command{
		Use: "reconcile", Short: "compare the tables with the topics, message by message", Args: cobra.NoArgs,
		Long: `Reads the rows that were made in a range of time and their topics, and compares them by message
id. It reports SENT rows that are not in their topic (missing), messages in a topic without a row
in any table (extra), messages that are stored more than once (repeated), and messages with
another body (different). It counts rows that are not sent yet and FAILED ones; they are no
difference.

The exit code is 0 when all is equal and 1 when it is not. It needs SELECT on the tables and READ
on the topics, changes nothing, and works next to a running relay.

--republish sets the missing rows back to PENDING, so that the relay publishes them again; the exit
code is still 1. It uses the running relay; without one it changes the rows itself. The audit lists it.

A record whose row was deleted, and one of another publisher of the topic, have no row either:
--ignore-extra leaves them out.`,
		Example: `  canal-outbox reconcile --from 24h
  canal-outbox reconcile --from 2026-01-02T00:00:00+08:00 --to 2026-01-03T00:00:00+08:00 --table shop.t_local_message -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			report, err := app.Reconcile(cmd.Context(), cfg, opts)
			if err != nil {
				return err
			}
			failed := c.republish(cmd.Context(), &report)
			if err := c.show(report, func(w io.Writer) { writeReconciliation(w, report) }); err != nil {
				return errors.Join(failed, err)
			}
			if failed != nil {
				return failed
			}
			if !report.Equal {
				return errDifferences
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.From, "from", "", "rows made at this `time` or later: RFC 3339 with a zone, or a span before now such as 24h")
	f.StringVar(&opts.To, "to", "", "and before this `time`; now when it is not given")
	f.StringSliceVar(&opts.Tables, "table", nil, "only this `table`, schema.table; may be repeated")
	f.StringSliceVar(&opts.Topics, "topic", nil, "only this `topic`; may be repeated")
	f.DurationVar(&opts.Margin, "margin", time.Hour, "read the topics from this long before --from to this long after --to; to the end when a message is missing")
	f.IntVar(&opts.Limit, "limit", 20, "show at most this many examples of each kind")
	f.BoolVar(&opts.IgnoreExtra, "ignore-extra", false, "do not look for records without a row: topics that others publish to, too, or rows that were deleted")
	f.BoolVar(&opts.Republish, "republish", false, "set missing rows back to PENDING, so that the relay publishes them again; not those of topics whose retention may have removed them")
	return changes(cmd)
}

// republishRows is the number of rows that one request publishes again; the audit has a line for each.
const republishRows = 1000

// republish sets the missing rows of a report back to PENDING. A row that is not SENT any more stays as it is. An error ends the work, and the
// rows before it stay changed; the report counts them.
func (c *cli) republish(ctx context.Context, r *reconcile.Report) error {
	if len(r.ToRepublish) == 0 {
		return nil
	}
	return c.withMessages(ctx, func(m operator.Service) error {
		r.Republished = 0
		for all := r.ToRepublish; len(all) > 0; {
			order := operator.MessageOrder{Table: all[0].Table, Republish: true}
			for len(all) > 0 && all[0].Table == order.Table && len(order.Rows) < republishRows {
				order.Rows = append(order.Rows, operator.MessageRow{ID: all[0].ID, MessageID: all[0].MessageID})
				all = all[1:]
			}
			change, err := m.RetryMessages(ctx, order)
			r.Republished += int64(change.Changed)
			if err != nil {
				return fmt.Errorf("%d of %d missing rows are PENDING again, then: %w", r.Republished, len(r.ToRepublish), err)
			}
			for _, note := range change.Notes {
				if !slices.Contains(r.Notes, note) {
					r.Notes = append(r.Notes, note)
				}
			}
		}
		return nil
	})
}

func writeReconciliation(w io.Writer, r reconcile.Report) {
	line(w, "rows made from %s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	line(w, "TABLE\tTOPIC\tROWS\tSENT\tNOT SENT\tFAILED\tHELD\tFAULTY\tMISSING\tREPEATED\tDIFFERENT")
	for _, g := range r.Tables {
		line(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", g.Table, orDash(g.Topic), g.Rows, g.Sent, g.NotSent, g.Failed, g.Held, g.Faulty,
			g.Missing, g.Repeated, g.Different)
	}
	line(w, "")
	line(w, "TOPIC\tRECORDS READ\tEXTRA\tWITHOUT MESSAGE ID")
	for _, t := range r.Topics {
		line(w, "%s\t%d\t%d\t%d", t.Topic, t.Records, t.Extra, t.WithoutID)
	}
	for _, kind := range []struct {
		name string
		list []reconcile.Message
	}{{"missing", r.Missing}, {"extra (no row)", r.Extra}, {"repeated", r.Repeated}, {"different", r.Different}} {
		for _, m := range kind.list {
			line(w, "%s\t%s", kind.name, describeMessage(m))
		}
	}
	for _, note := range r.Notes {
		line(w, "note: %s", note)
	}
	if r.Republished > 0 {
		line(w, "%d missing rows are PENDING again", r.Republished)
	}
	if r.Equal {
		line(w, "equal")
	} else {
		line(w, "not equal")
	}
}

func describeMessage(m reconcile.Message) string {
	text := strconv.Quote(m.MessageID) + " of " + m.Topic
	if m.Table != "" {
		text += ", " + m.Table
	}
	if m.ID != "" {
		text += " row " + m.ID
	}
	if m.Place != "" {
		text += ", " + m.Place
	}
	if m.At != nil {
		text += " at " + m.At.Format(time.RFC3339)
	}
	if m.Copies > 0 {
		text += ", " + strconv.FormatInt(m.Copies, 10) + " copies"
	}
	return text
}
