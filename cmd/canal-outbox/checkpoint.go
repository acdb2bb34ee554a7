package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func newCheckpoint(c *cli) *cobra.Command {
	cmd := group("checkpoint", "show and move the position from which the binlog is read",
		newCheckpointShow(c), newCheckpointSet(c), newCheckpointHistory(c), newCheckpointRollback(c), newCheckpointExport(c), newCheckpointImport(c))
	cmd.Long = `The checkpoint is the end of the last transaction up to which everything is settled.
The commands use the running relay over its socket; when none runs they open the state
directory themselves. Moving the checkpoint never publishes a row twice that is SENT, and
never loses one: what is read again is looked up in its table, what is skipped is swept.`
	return cmd
}

func newCheckpointShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "show the checkpoint", Args: cobra.NoArgs,
		Example: "  canal-outbox checkpoint show -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			get := func(o operator.Service) (operator.Checkpoint, error) { return o.Checkpoint(cmd.Context()) }
			return answer(cmd.Context(), c, true, get, func(w io.Writer, cp operator.Checkpoint) {
				line(w, "position\t%s", describe(cp.Position))
				line(w, "source\t%s", orDash(cp.Source))
				line(w, "journal\t%d sent, not yet written to the table", cp.Journal)
			})
		},
	}
}

func newCheckpointSet(c *cli) *cobra.Command {
	var target operator.Target
	var yes bool
	cmd := &cobra.Command{
		Use: "set", Short: "move the checkpoint", Args: cobra.NoArgs,
		Long: `Shows what a move would do, asks, and moves. A running relay pauses its reader, moves and
continues without a restart. The old position stays in the history.`,
		Example: `  canal-outbox checkpoint set --latest --dry-run
  canal-outbox checkpoint set --file binlog.000042 --pos 157
  canal-outbox checkpoint set --time '2026-01-02 15:04:05 Asia/Shanghai' --dry-run
  canal-outbox checkpoint set --gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if target.Republish && !cmd.Flags().Changed("limit") {
				target.Limit = operator.DefaultRepublish
			}
			if err := target.Check(); err != nil {
				return err
			}
			return c.move(cmd.Context(), target, yes)
		},
	}
	f := cmd.Flags()
	f.StringVar(&target.GTID, "gtid", "", "executed GTID `set`: continue after it")
	f.StringVar(&target.File, "file", "", "binlog `file`, with --pos")
	f.Uint64Var(&target.Pos, "pos", 0, "`offset` in --file: the end of a transaction")
	f.BoolVar(&target.Latest, "latest", false, "the end of the server's log")
	f.BoolVar(&target.Earliest, "earliest", false, "the oldest position the server still has")
	f.StringVar(&target.Time, "time", "", "`time` by the database's clock, such as 2026-01-02T15:04:05Z")
	f.BoolVar(&target.Republish, "republish", false, "move nothing: publish SENT rows between there and the checkpoint again")
	f.IntVar(&target.Limit, "limit", 0, "with --republish: at most this many `rows`; refused when there are more (default 1000)")
	f.BoolVar(&target.DryRun, "dry-run", false, "only show what would happen")
	f.BoolVar(&yes, "yes", false, "do not ask")
	return changes(cmd)
}

func newCheckpointRollback(c *cli) *cobra.Command {
	var target operator.Target
	var yes bool
	cmd := &cobra.Command{
		Use: "rollback N", Short: "return to an entry of the history", Args: cobra.ExactArgs(1),
		Example: "  canal-outbox checkpoint history\n  canal-outbox checkpoint rollback 17",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil {
				return operator.Usagef("%q is not the number of an entry: `canal-outbox checkpoint history` shows them", args[0])
			}
			target.Entry = &n
			return c.move(cmd.Context(), target, yes)
		},
	}
	cmd.Flags().BoolVar(&target.DryRun, "dry-run", false, "only show what would happen")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return changes(cmd)
}

// move previews, asks for confirmation where needed, and moves.
func (c *cli) move(ctx context.Context, target operator.Target, yes bool) error {
	return c.operate(ctx, func(o operator.Service) error {
		preview := target
		preview.DryRun = true
		p, err := o.SetCheckpoint(ctx, preview)
		if err != nil {
			return err
		}
		if target.DryRun {
			return c.showPreview(p)
		}
		if !yes {
			if err := c.ask(p); err != nil {
				return err
			}
		}
		if p, err = o.SetCheckpoint(ctx, target); err != nil {
			return err
		}
		return c.showPreview(p)
	})
}

// ask shows the preview on standard error and reads the answer.
func (c *cli) ask(p operator.Preview) error {
	if _, err := fmt.Fprintf(c.err, "from  %s\nto    %s\n", describe(p.From), describe(p.To)); err != nil {
		return err
	}
	for _, note := range p.Notes {
		if _, err := fmt.Fprintf(c.err, "  - %s\n", note); err != nil {
			return err
		}
	}
	return c.confirm(question(p), "nothing was moved")
}

// confirm asks on the terminal, and refuses without one.
func (c *cli) confirm(question, undone string) error {
	if !isTerminal(c.in) {
		return operator.Refusedf("%s: add --yes to do it without being asked, or --dry-run to look only", undone)
	}
	if _, err := fmt.Fprintf(c.err, "%s [y/N] ", question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return operator.Refusedf("%s; --yes does it without being asked", undone)
	}
	return nil
}

// question returns the question for a preview.
func question(p operator.Preview) string {
	if p.Republish > 0 {
		return fmt.Sprintf("Publish %d rows again?", p.Republish)
	}
	return "Move the checkpoint?"
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (c *cli) showPreview(p operator.Preview) error {
	return c.show(p, func(w io.Writer) {
		line(w, "from\t%s", describe(p.From))
		line(w, "to\t%s", describe(p.To))
		for _, note := range p.Notes {
			line(w, "  - %s", note)
		}
		switch {
		case p.Applied && p.Republish > 0:
			line(w, "%d rows were published again", p.Republished)
		case p.Applied:
			line(w, "moved")
		default:
			line(w, "nothing was changed (dry run)")
		}
	})
}

func newCheckpointHistory(c *cli) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "history", Short: "list the checkpoints of the past", Args: cobra.NoArgs,
		Example: "  canal-outbox checkpoint history --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return operator.Usagef("--limit %d: must be 1 or more", limit)
			}
			get := func(o operator.Service) ([]operator.HistoryEntry, error) { return o.History(cmd.Context(), limit) }
			return answer(cmd.Context(), c, true, get, func(w io.Writer, entries []operator.HistoryEntry) {
				line(w, "N\tTIME\tPOSITION\tSOURCE\tREASON")
				for _, e := range entries {
					line(w, "%d\t%s\t%s\t%s\t%s", e.Number, e.At.Format(time.RFC3339), e.Position, orDash(e.Source), cmp.Or(e.Reason, "read"))
				}
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many, newest first")
	return cmd
}

// describe returns a position with its GTID set, for people.
func describe(p outbox.Position) string {
	switch {
	case p.IsZero():
		return "-"
	case p.File != "" && p.GTIDs != "":
		return p.String() + "  GTIDs " + p.GTIDs
	}
	return p.String()
}

func orDash(text string) string { return cmp.Or(text, "-") }
