package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/translate"
)

const (
	defaultConfig = "/etc/canal-outbox/canal-outbox.yaml"
	formatText    = "text"
	formatJSON    = "json"
)

// cli is shared by all commands: the streams and the global flags.
type cli struct {
	in       io.Reader
	out, err io.Writer

	words *translate.Catalogue // of the person's language; nil for English, and for JSON

	configPath string
	format     string
	started    bool        // the command's own code was reached
	log        *zap.Logger // of `run` with log.format json: all of its standard error is JSON
}

const rootHelp = `canal-outbox publishes the rows of a local message table (transactional outbox) to
RocketMQ or Kafka: milliseconds after their commit by following the binlog, and by
a sweep over the table for every row that the binlog did not deliver.

Exit codes: 0 done, 1 failed (no answer of the relay within 5 s, or differences that reconcile
found, too), 2 wrong usage, 3 refused (a decision is needed), 4 "status" found problems.

LC_ALL, LC_MESSAGES or LANG with zh_CN.UTF-8 makes "status", "doctor" and "init" speak Chinese.`

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use: "canal-outbox", Short: "relay a local message table to RocketMQ or Kafka", Long: rootHelp,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if c.format != formatText && c.format != formatJSON {
				return fmt.Errorf("-o %q is neither text nor json", c.format)
			}
			claim := operator.LoginClaim(os.Getuid(), os.Getenv)
			if by := cmd.Flags().Lookup("by"); by != nil {
				claim.By = by.Value.String()
			}
			if err := claim.Check(); err != nil {
				return err
			}
			cmd.SetContext(operator.WithClaim(cmd.Context(), os.Getuid(), claim))
			if c.format == formatJSON {
				c.words = nil // scripts read English in every language
			}
			c.started = true
			return nil
		},
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.PersistentFlags().StringVarP(&c.configPath, "config", "c", defaultConfig, "configuration `file`")
	root.PersistentFlags().StringVarP(&c.format, "output", "o", formatText, "`form` of the output: text or json")
	root.AddCommand(
		newInit(c), newRun(c), newDoctor(c), newMigrate(c), newStatus(c), newSweep(c), newPause(c), newResume(c), newAudit(c), newRetention(c), newReconcile(c), newBench(c), newCheckpoint(c), newGaps(c), newMessages(c), newConfig(c), newVersion(c),
	)
	return root
}

// group is a command that only contains others: calling it without one is wrong usage.
func group(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return operator.Usagef("%s needs one of its commands; see `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	}}
	cmd.AddCommand(subcommands...)
	return cmd
}

// changes adds the flag --by, which PersistentPreRunE reads, to a command that changes something.
func changes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("by", "", "the `name` of the person, for `canal-outbox audit`; the user and the login are recorded without it")
	return cmd
}

// load reads the configuration and warns of environment variables that match no key.
func (c *cli) load() (*config.Config, error) {
	cfg, unknown, err := c.read()
	return cfg, errors.Join(c.warn(unknown), err)
}

// read reads the configuration and returns the names of environment variables that match no key.
func (c *cli) read() (cfg *config.Config, unknown []string, err error) {
	return config.Load(c.configPath, os.Environ(), app.Sinks)
}

// warn names environment variables that match no key.
func (c *cli) warn(unknown []string) error {
	const what = "the environment variable matches no key of the configuration"
	for _, name := range unknown {
		if c.log != nil {
			c.log.Warn(what, zap.String("variable", name))
		} else if _, err := fmt.Fprintf(c.err, "canal-outbox: warning: %s: %s\n", what, name); err != nil {
			return err
		}
	}
	return nil
}

// show prints a value: as JSON, or as the text of write, in columns separated by tabs.
func (c *cli) show(value any, write func(w io.Writer)) error {
	if c.format == formatJSON {
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(value)
	}
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	write(w)
	return w.Flush()
}

// done prints a short success.
func (c *cli) done(format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return c.show(map[string]string{"done": message}, func(w io.Writer) { line(w, "%s", message) })
}

// line writes one line to a buffer-like writer, whose flush returns the error.
func line(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
