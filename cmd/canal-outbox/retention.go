package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
)

func newRetention(c *cli) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "retention", Short: "remove old rows from the tables, now", Args: cobra.NoArgs,
		Long: `The running relay deletes or moves the rows that are older than the configuration's "retention"
allows, at once and at any time of day. With --dry-run the command counts these rows in the
database, and changes nothing; no relay is needed. It reads at most a million rows of each table.`,
		Example: "  canal-outbox retention --dry-run\n  canal-outbox retention",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return c.previewRetention(cmd)
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			if err := client.Retention(cmd.Context()); err != nil {
				return err
			}
			return c.done("old rows begin to leave the tables; `canal-outbox status` shows it")
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "count the rows that would leave, and change nothing")
	return changes(cmd)
}

func (c *cli) previewRetention(cmd *cobra.Command) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	all, err := app.PreviewRetention(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return c.show(all, func(w io.Writer) {
		for _, l := range all {
			line(w, "%s", leavingText(l))
		}
	})
}

func leavingText(l app.Leaving) string {
	count := fmt.Sprint(l.Rows)
	if l.AtLeast {
		count = "at least " + count
	}
	does := "would be deleted"
	if l.Into != "" {
		does = "would move to " + l.Into
	}
	return fmt.Sprintf("%s\t%s rows that are %s for %s %s", l.Table, count, strings.ToUpper(l.Status), age(l.Seconds), does)
}

// age formats a duration without its trailing zero parts.
func age(s int64) string {
	d := time.Duration(s) * time.Second
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}
