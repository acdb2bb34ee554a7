package main

import (
	"io"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/spf13/cobra"
)

func newAudit(c *cli) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "audit", Short: "list the changes that people made, with author, time, and the state before and after", Args: cobra.NoArgs,
		Long: `Lists the changes that people made to the relay and its rows, newest first: the last 1000, from
the state directory. The log has a line for each as well. A refused command has changed nothing
and is not listed. A change of rows is recorded before its work: one whose process ended in the
middle is shown as not finished.`,
		Example: "  canal-outbox audit --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > 10_000 {
				return operator.Usagef("--limit %d: must be from 1 to 10000", limit)
			}
			get := func(o operator.Service) ([]operator.Change, error) { return o.Audit(cmd.Context(), limit) }
			return answer(cmd.Context(), c, true, get, func(w io.Writer, changes []operator.Change) {
				line(w, "N\tTIME\tBY\tWHAT\tBEFORE\tAFTER")
				for _, change := range changes {
					after := orDash(change.After)
					if change.Unfinished {
						after = "not finished: it is running, or its process ended in the middle"
					}
					if change.Error != "" {
						after += " (failed: " + change.Error + ")"
					}
					line(w, "%d\t%s\t%s\t%s\t%s\t%s", change.Number, change.At.Format(time.RFC3339), change.By, change.What, orDash(change.Before), after)
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many")
	return cmd
}
