package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// change is a command that changes messages.
type change struct {
	cli       *cli
	order     operator.MessageOrder
	filter    operator.MessageFilter
	olderThan time.Duration
	yes       bool
	question  string
	done      string
	do        func(m operator.Messages, ctx context.Context, o operator.MessageOrder) (operator.MessageChange, error)
}

func newMessagesRetry(c *cli) *cobra.Command {
	ch := &change{cli: c, question: "Retry", done: "PENDING again and due", do: operator.Messages.RetryMessages}
	cmd := ch.command("retry [ID|MESSAGE_ID...]", "set failed messages back to PENDING, due now")
	cmd.Long = `Sets messages that have FAILED back to PENDING, with no attempt used, due now, and asks the relay
for a sweep. PENDING messages that wait after an attempt wait no longer. Any other message is
refused with the reason; then nothing is changed at all.

Name messages by primary key or message id, or choose them by a filter. It shows what it would do
and asks; in scripts it needs --yes.

--republish takes messages that are SENT and publishes them again, under the same message ids.`
	cmd.Example = `  canal-outbox messages retry order:4711
  canal-outbox messages retry --topic orders --reason "timed out" --limit 1000 --dry-run
  canal-outbox messages retry --status failed --yes`
	cmd.Flags().BoolVar(&ch.order.Republish, "republish", false, "take messages that are SENT: consumers see them again")
	return cmd
}

func newMessagesDiscard(c *cli) *cobra.Command {
	ch := &change{cli: c, question: "Discard", done: "in the failed-message log", do: operator.Messages.DiscardMessages}
	cmd := ch.command("discard [ID|MESSAGE_ID...]", "move failed messages into the failed-message log")
	cmd.Long = `Moves messages that have FAILED into the table's failed-message log, TABLE_failed, whole, each in one
transaction. No consumer sees them. Any other message is refused with the reason; then nothing is
changed at all. When the log is missing it prints the statements that make it. The account of the
relay needs INSERT on it and DELETE on the table.

It shows what it would do and asks; in scripts it needs --yes.`
	cmd.Example = `  canal-outbox messages discard 17 --dry-run
  canal-outbox messages discard --topic orders --reason max_message_bytes --yes`
	return cmd
}

func (ch *change) command(use, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := false
			for _, name := range []string{"status", "type", "topic", "key", "reason", "older-than"} {
				chosen = chosen || cmd.Flags().Changed(name)
			}
			return ch.run(cmd.Context(), args, chosen)
		},
	}
	f := cmd.Flags()
	f.StringVar(&ch.order.Table, "table", "", tableHelp)
	filterFlags(cmd, &ch.filter, &ch.olderThan)
	f.IntVar(&ch.order.Limit, "limit", operator.DefaultChanges, "change at most this many")
	f.BoolVar(&ch.order.Scan, "scan", false, scanHelp)
	f.BoolVar(&ch.order.DryRun, "dry-run", false, "only show what would happen")
	f.BoolVar(&ch.yes, "yes", false, "do not ask")
	return changes(cmd)
}

// run previews, asks for confirmation where needed, and changes.
func (ch *change) run(ctx context.Context, refs []string, chosen bool) error {
	order := ch.order
	order.IDs = refs
	if ch.filter.OlderThan = operator.Duration(ch.olderThan); chosen {
		order.Filter = &ch.filter
	}
	if len(refs) == 0 && !chosen {
		return operator.Usagef("name messages by primary key or message id, or choose them by a filter: --status failed takes all that have failed")
	}
	if order.Limit == 0 { // which means the default in the API
		return operator.Usagef("--limit 0: must be from 1 to %d", operator.MaxChanges)
	}
	if err := order.Check(); err != nil {
		return err
	}
	return ch.cli.withMessages(ctx, func(m operator.Service) error {
		preview := order
		preview.DryRun = true
		p, err := ch.do(m, ctx, preview)
		if err != nil {
			return err
		}
		if order.DryRun {
			return ch.show(p)
		}
		if p.Matched > 0 && len(p.Refused) == 0 && !ch.yes {
			if err := ch.ask(p); err != nil {
				return err
			}
		}
		if p, err = ch.do(m, ctx, order); err != nil {
			return err
		}
		return ch.show(p)
	})
}

func (ch *change) ask(p operator.MessageChange) error {
	w := tabwriter.NewWriter(ch.cli.err, 0, 8, 2, ' ', 0)
	writeMessages(w, p.Messages)
	if rest := p.Matched - len(p.Messages); rest > 0 {
		line(w, "and %d more", rest)
	}
	writeNotes(w, p.Notes)
	if err := w.Flush(); err != nil {
		return err
	}
	return ch.cli.confirm(fmt.Sprintf("%s %s of %s?", ch.question, messageCount(p.Matched), p.Table), "nothing was changed")
}

func (ch *change) show(p operator.MessageChange) error {
	return ch.cli.show(p, func(w io.Writer) {
		writeMessages(w, p.Messages)
		if rest := p.Matched - len(p.Messages); rest > 0 {
			line(w, "and %d more", rest)
		}
		for _, r := range p.Refused {
			line(w, "not %s: %s", plain(r.Ref), plain(r.Reason))
		}
		if p.More {
			line(w, "more messages fit the filter than --limit allows")
		}
		writeNotes(w, p.Notes)
		if p.DryRun {
			line(w, "%s would be changed; nothing was (dry run)", messageCount(p.Matched))
		} else {
			line(w, "%s now %s", messageCount(p.Changed), ch.done)
		}
	})
}

func messageCount(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
