// Command demo is `make demo`: the whole task on one machine, with deliberate faults and a verified account at the end. It starts
// a private database and an embedded Kafka (or uses an external broker), runs business transactions against them and the relay as
// a separate process (the binary in the same directory), kills the relay, takes the broker away, purges the binlog under the
// stopped relay, and then compares what the application committed with what the broker has, row by row.
//
// Guarantee: the demo ends well only when nothing committed is missing, nothing was published that was not committed, every content
// is the committed one, every row is SENT and the purge was recorded as a gap. However it ends, also by signals, the processes,
// directories and topics that it created are removed. Exit codes: 0 the account is right, 1 it is not or the demo failed, 2 wrong
// usage.
//
// run owns all goroutines (producers, consumer, progress, one that waits for the relay's process) and has waited for them when it
// returns.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func main() {
	cmd, begun := newCommand()
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		if *begun {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

// newCommand returns the command line. begun is set when the usage was right.
func newCommand() (cmd *cobra.Command, begun *bool) {
	opts := options{Duration: defaultDuration, Rate: defaultRate}
	var mysql, mariaDB bool
	begun = new(bool)
	cmd = &cobra.Command{
		Use: "demo", Short: "run the whole task on this machine, with faults and a verified account", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		Long: `Starts a private database, an embedded Kafka, a shop that commits orders with their messages,
and the relay. Meanwhile it kills the relay, stops the broker, and purges the binlog under the
stopped relay. At the end it looks for every committed message at the broker and in the table.
It fails when a message is missing, invented or altered, and removes everything it created.

The database is the MySQL or MariaDB server of this machine, started in a new private directory;
without one the distribution's MariaDB package is installed (as root or with sudo). On an external
broker the demo creates a topic, and deletes it at the end.`,
		Example: `  make demo
  make demo ARGS=--keep
  make demo ARGS="--mariadb --kafka 127.0.0.1:9092"
  make demo ARGS="--rocketmq 127.0.0.1:9876 --duration 2m --rate 1000"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case mysql:
				opts.Flavor = mySQL(cmd.Context())
			case mariaDB:
				opts.Flavor = testkit.MariaDB
			}
			if opts.Duration < minDuration {
				return fmt.Errorf("--duration %v is too short for three faults: at least %v", opts.Duration, minDuration)
			}
			if opts.Rate < 1 {
				return fmt.Errorf("--rate %d: at least one transaction per second", opts.Rate)
			}
			if opts.Relay == "" {
				var err error
				if opts.Relay, err = neighbour(); err != nil {
					return err
				}
			}
			*begun = true
			return run(cmd.Context(), opts, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&mysql, "mysql", false, "use MySQL; unpacks it when the machine has none (80 MB, once)")
	flags.BoolVar(&mariaDB, "mariadb", false, "use MariaDB")
	flags.StringVar(&opts.Kafka, "kafka", "", "publish to the Kafka broker at `host:port`")
	flags.StringVar(&opts.RocketMQ, "rocketmq", "", "publish to the RocketMQ whose name server is at `host:port`")
	flags.DurationVar(&opts.Duration, "duration", opts.Duration, "how long the shop is open")
	flags.IntVar(&opts.Rate, "rate", opts.Rate, "business transactions per second")
	flags.BoolVar(&opts.Keep, "keep", false, "let everything run after the account, until Ctrl-C")
	flags.StringVar(&opts.Relay, "relay", "", "the canal-outbox `binary` to show; default: the one next to this program")
	cmd.MarkFlagsMutuallyExclusive("mysql", "mariadb")
	cmd.MarkFlagsMutuallyExclusive("kafka", "rocketmq")
	return cmd, begun
}

// neighbour returns the path of the relay's binary in this program's directory, where make puts it.
func neighbour() (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the directory of this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(own), "canal-outbox")
	if _, err := os.Stat(path); err != nil {
		return "", errors.New("there is no canal-outbox next to this program: run `make demo`, or name it with --relay")
	}
	return path, nil
}
