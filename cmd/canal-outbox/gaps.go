package main

import (
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func newGaps(c *cli) *cobra.Command {
	cmd := group("gaps", "parts of the binlog that were not read", newGapsList(c), newGapsAck(c))
	cmd.Long = `A gap is a part of the binlog that could not be read: purged, lost with its server, or
skipped by an operator. A full sweep published the rows of the tables instead. The record stays until
it is acknowledged.`
	return cmd
}

func newGapsList(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list the gaps", Args: cobra.NoArgs, Example: "  canal-outbox gaps list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			get := func(o operator.Service) ([]outbox.Gap, error) { return o.Gaps(cmd.Context()) }
			return answer(cmd.Context(), c, true, get, func(w io.Writer, gaps []outbox.Gap) {
				if len(gaps) == 0 {
					line(w, "no gaps")
					return
				}
				line(w, "ID\tTIME\tCAUSE\tFROM\tTO\tACKNOWLEDGED")
				for _, g := range gaps {
					line(w, "%d\t%s\t%s\t%s\t%s\t%v", g.ID, g.At.Format(time.RFC3339), g.Cause, orDash(g.From.String()), orDash(g.To.String()),
						map[bool]string{true: "yes", false: "no"}[g.Acknowledged])
				}
			})
		},
	}
}

func newGapsAck(c *cli) *cobra.Command {
	return changes(&cobra.Command{
		Use: "ack ID...", Short: "mark gaps as seen", Args: cobra.MinimumNArgs(1), Example: "  canal-outbox gaps ack 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			var ids []uint64
			for _, arg := range args {
				id, err := strconv.ParseUint(arg, 10, 64)
				if err != nil {
					return operator.Usagef("%q is not the number of a gap: `canal-outbox gaps list` shows them", arg)
				}
				ids = append(ids, id)
			}
			return c.operate(cmd.Context(), func(o operator.Service) error {
				for _, id := range ids {
					if err := o.AckGap(cmd.Context(), id); err != nil {
						return err
					}
				}
				return c.done("%d acknowledged", len(ids))
			})
		},
	})
}
