package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/bench"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

func newBench(c *cli) *cobra.Command {
	var opts bench.Options
	var yes bool
	cmd := &cobra.Command{
		Use: "bench", Short: "measure a relay between your servers, on a table of its own", Args: cobra.NoArgs,
		Long: `Creates a table, starts a relay for it alone inside this process, and measures in about a minute:
rows at a rate (how long the INSERT takes, and how long after its return the broker has the message),
then a backlog that is in the binlog when the relay starts. Each row is accounted for. The table is
dropped at the end; the messages stay in the topic, which must exist: use one without consumers.

It uses the servers of the configuration, but not its tables and its relay. The account needs
SELECT, INSERT, UPDATE, CREATE and DROP on the table in addition to the rights of "run". The relay's state
is in a directory under $TMPDIR: put that on the disk of checkpoint.dir for comparable figures.`,
		Example: "  canal-outbox bench --topic canal_outbox_bench\n  canal-outbox bench --topic canal_outbox_bench --rate 2000 --time 1m --backlog 500000 --yes -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if err := benchTable(cfg, &opts); err != nil {
				return err
			}
			if !yes {
				return operator.Refusedf("nothing was measured: this creates and drops the table %s on %s, and publishes %d messages to the topic %s; add --yes",
					opts.Table, cfg.Source.Address, opts.Messages(), opts.Topic)
			}
			log, err := newLogger(config.Log{Level: "warn", Format: "text"})
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // terminals and pipes cannot be synced; the process ends anyway
			result, err := app.Bench(cmd.Context(), cfg, opts, version, log)
			if err != nil {
				return err
			}
			return c.show(result, func(w io.Writer) { writeBench(w, result) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Table, "table", "", "create this `schema.table`; canal_outbox_bench in the schema of the first table when it is not given")
	f.StringVar(&opts.Topic, "topic", "canal_outbox_bench", "publish to this `topic`")
	f.IntVar(&opts.Rate, "rate", 500, "rows a second, each a transaction")
	f.DurationVar(&opts.Time, "time", 20*time.Second, "for this time")
	f.IntVar(&opts.Backlog, "backlog", 100_000, "rows that are in the binlog when the relay starts; 0 for none")
	f.IntVar(&opts.Body, "body", 500, "bytes of each body")
	f.BoolVar(&yes, "yes", false, "do it; without it the command only says what it would do")
	return cmd
}

// benchTable checks the options and returns the table's name.
func benchTable(cfg *config.Config, opts *bench.Options) error {
	switch {
	case opts.Rate < 1:
		return operator.Usagef("--rate %d: must be 1 or more", opts.Rate)
	case opts.Time <= 0:
		return operator.Usagef("--time %v: must be more than 0", opts.Time)
	case opts.Backlog < 0:
		return operator.Usagef("--backlog %d: must be 0 or more", opts.Backlog)
	case opts.Body < 1:
		return operator.Usagef("--body %d: must be 1 or more", opts.Body)
	case opts.Topic == "":
		return operator.Usagef("--topic is empty: name a topic without consumers")
	}
	if opts.Table == "" {
		schema, _, _ := strings.Cut(cfg.Tables[0].Name, ".")
		opts.Table = schema + ".canal_outbox_bench"
	}
	schema, name, found := strings.Cut(opts.Table, ".")
	if !found || schema == "" || name == "" || strings.ContainsAny(opts.Table, "*{}") {
		return operator.Usagef("--table %q: must be schema.table, of a table that does not exist", opts.Table)
	}
	return nil
}

func writeBench(w io.Writer, r bench.Result) {
	line(w, "%d rows at %.0f rows/s, one a transaction, %d bytes a body\tp50\tp99\tmax", r.Steady.Rows, r.Steady.Rate, r.Body)
	for _, t := range []struct {
		what string
		bench.Times
	}{{"the INSERT", r.Steady.Commit}, {"from its return to the broker's acknowledgement", r.Steady.Published}} {
		line(w, "%s\t%.1f ms\t%.1f ms\t%.1f ms", t.what, t.P50, t.P99, t.Max)
	}
	if d := r.Drain; d.Rows > 0 {
		line(w, "")
		line(w, "%d rows in the binlog when the relay starts", d.Rows)
		line(w, "first message\t%.2f s after the start", d.FirstSeconds)
		line(w, "published\t%.0f messages/s", d.Published)
		line(w, "SENT in the table\t%.0f rows/s", d.Sent)
		line(w, "CPU of the relay\t%.1f µs a message", d.CPUMicros)
	}
	line(w, "")
	line(w, "%d messages acknowledged, each row once; %d repeated", r.Messages, r.Repeated)
	line(w, "the messages stay in the topic %s", r.Topic)
}
