package main

import "github.com/spf13/cobra"

func newSweep(c *cli) *cobra.Command {
	return changes(&cobra.Command{
		Use: "sweep", Short: "look for unsent rows of any age in the tables, now", Args: cobra.NoArgs, Example: "  canal-outbox sweep",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			if err := client.Sweep(cmd.Context()); err != nil {
				return err
			}
			return c.done("a sweep was started; `canal-outbox status` shows it")
		},
	})
}
