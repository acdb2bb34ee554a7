package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
)

func newRun(c *cli) *cobra.Command {
	opts := app.Options{Version: version}
	cmd := &cobra.Command{
		Use: "run", Short: "run the relay until a signal stops it", Args: cobra.NoArgs,
		Long: `Follows the binlog, publishes, writes the results back and sweeps the tables. Whatever would
make that impossible is reported at the start, all at once. The first SIGINT or SIGTERM
finishes what is in flight and ends; the second ends at once. A terminal that closes
(SIGHUP) is like the first, except with nohup.`,
		Example: "  canal-outbox run --config /etc/canal-outbox/canal-outbox.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, unknown, err := c.read()
			if err != nil {
				return errors.Join(c.warn(unknown), err)
			}
			log, err := newLogger(cfg.Log)
			if err != nil {
				return err
			}
			if cfg.Log.Format == "json" {
				c.log = log
			}
			if err := c.warn(unknown); err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // terminals and pipes cannot be synced; the process ends anyway
			defer zap.RedirectStdLog(log)()   // output of libraries becomes a line of the same form
			return app.Run(cmd.Context(), cfg, opts, log)
		},
	}
	cmd.Flags().BoolVar(&opts.Shadow, "shadow", false,
		"send nothing and write nothing into the tables; report what would be sent, and how much earlier than another sender marks it")
	cmd.Flags().BoolVar(&opts.AcceptNewSource, "accept-new-source", false,
		"take over a server that is not the one of the checkpoint, with a full sweep")
	return cmd
}

// newLogger writes to standard error. It samples equal lines within one second, so that a failing broker does not fill the disk.
func newLogger(l config.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(l.Level)
	if err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	z := zap.NewProductionConfig()
	z.Level = zap.NewAtomicLevelAt(level)
	z.EncoderConfig.TimeKey, z.EncoderConfig.EncodeTime = "time", zapcore.TimeEncoderOfLayout(time.RFC3339Nano)
	z.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	z.DisableStacktrace = true
	if l.Format == "text" {
		z.Encoding, z.EncoderConfig.EncodeLevel = "console", zapcore.CapitalLevelEncoder
	}
	return z.Build()
}
