package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

func newCheckpointExport(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "export FILE", Short: "write the whole state to a file, for another machine", Args: cobra.ExactArgs(1),
		Long: `Writes position, history, gaps, journal, waits and pause to a file that "checkpoint import" reads.
It works while the relay runs and disturbs nothing. Stop the relay before the import is started
elsewhere: what it publishes after the export and cannot write to the table any more is sent again.`,
		Example: "  canal-outbox checkpoint export state.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.operate(cmd.Context(), func(o operator.Service) error {
				if err := writeNew(args[0], func(w io.Writer) error { return o.Export(cmd.Context(), w) }); err != nil {
					return err
				}
				return c.done("the state is in %s", args[0])
			})
		},
	}
}

// writeNew creates a file, whole or not at all, and replaces none.
func writeNew(path string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return operator.Refusedf("%s exists: name another file", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".canal-outbox-*") // readable by this user alone
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	if err := errors.Join(write(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Link(file.Name(), path) // which, unlike a rename, replaces nothing
}

func newCheckpointImport(c *cli) *cobra.Command {
	var force, dryRun bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "put an exported state into the state directory", Args: cobra.ExactArgs(1),
		Long: `Puts what "checkpoint export" has written into checkpoint.dir, which no relay may use meanwhile.
It is refused when the directory has a state already, and when the configured database is not the
one of the export or does not answer; --force imports nevertheless, reports what it has overruled,
and moves the existing state aside.`,
		Example: "  canal-outbox checkpoint import state.jsonl --dry-run\n  canal-outbox checkpoint import state.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.importState(cmd.Context(), args[0], force, dryRun)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "import in spite of a conflict")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would happen")
	return changes(cmd)
}

func (c *cli) importState(ctx context.Context, path string, force, dryRun bool) (err error) {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return operator.Usagef("the file cannot be read: %v", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	done, err := app.ImportState(ctx, cfg, file, force, dryRun)
	if err != nil {
		return err
	}
	return c.show(done, func(w io.Writer) {
		line(w, "to\t%s", done.Dir)
		line(w, "exported\t%s", done.ExportedAt.Format(time.RFC3339))
		line(w, "source\t%s", done.Source)
		line(w, "position\t%s", describe(done.Position))
		line(w, "journal\t%d sent, not yet written to the table", done.Journal)
		line(w, "waits\t%d refused rows", done.Waits)
		for _, note := range done.Notes {
			line(w, "  - %s", note)
		}
		if done.Replaced != "" {
			line(w, "  - the state that was there is in %s", filepath.Join(done.Dir, done.Replaced))
		}
		if done.Applied {
			line(w, "imported")
		} else {
			line(w, "nothing was changed (dry run)")
		}
	})
}
