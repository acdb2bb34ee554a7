package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func newPause(c *cli) *cobra.Command {
	var order operator.PauseOrder
	cmd := &cobra.Command{
		Use: "pause", Short: "stop reading and publishing, until resume", Args: cobra.NoArgs,
		Long: `Stops the intake: nothing is read from the binlog and no sweep publishes. What is in flight is
completed, and rows wait in their tables, so no message is lost. The pause survives a restart.
When the server purges the binlog meanwhile, "resume" records a gap and a full sweep publishes
what is PENDING, without the order of the log.`,
		Example: "  canal-outbox pause --reason \"moving the topic orders\"\n  canal-outbox resume",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := order.Check(); err != nil {
				return err
			}
			return c.operate(cmd.Context(), func(o operator.Service) error {
				p, err := o.Pause(cmd.Context(), outbox.Pause{By: operator.Caller(cmd.Context()), Since: time.Now().UTC().Truncate(time.Second), Reason: order.Reason})
				if err != nil {
					return err
				}
				return c.done("the relay is %s; `canal-outbox resume` ends the pause", p)
			})
		},
	}
	cmd.Flags().StringVar(&order.Reason, "reason", "", "why, in a few `words`, shown in status and alerts")
	return changes(cmd)
}

func newResume(c *cli) *cobra.Command {
	return changes(&cobra.Command{
		Use: "resume", Short: "end the pause", Args: cobra.NoArgs, Example: "  canal-outbox resume",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.operate(cmd.Context(), func(o operator.Service) error {
				if err := o.Resume(cmd.Context()); err != nil {
					return err
				}
				return c.done("resumed; `canal-outbox status` shows it")
			})
		},
	})
}
