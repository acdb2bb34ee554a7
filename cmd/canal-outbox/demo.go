package main

import (
	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/demo"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func newDemo(c *cli) *cobra.Command {
	opts := demo.Options{Duration: demo.DefaultDuration, Rate: demo.DefaultRate}
	var mysql, mariaDB bool
	cmd := &cobra.Command{
		Use: "demo", Short: "show the whole job on this machine, with faults and a verified account", Args: cobra.NoArgs,
		Long: `Starts a private database, an embedded Kafka, a shop that commits orders with their messages,
and the relay. Meanwhile the relay is killed, the broker goes away, and the binlog is purged
under the stopped relay. At the end every committed message is looked for at the broker and
in the table. It fails when anything is missing, invented or altered, and leaves nothing behind.

The database is the MySQL or MariaDB server of this machine, started anew in a directory of its
own; without one the distribution's MariaDB package is installed (as root or with sudo). A broker
that is given gets a topic of its own, which is deleted at the end.`,
		Example: `  canal-outbox demo
  canal-outbox demo --keep
  canal-outbox demo --mariadb --kafka 127.0.0.1:9092
  canal-outbox demo --rocketmq 127.0.0.1:9876 --duration 2m --rate 1000`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case mysql:
				opts.Flavor = testkit.MySQL
			case mariaDB:
				opts.Flavor = testkit.MariaDB
			}
			if opts.Duration < demo.MinDuration {
				return admin.Usagef("--duration %v is too short for three faults: at least %v", opts.Duration, demo.MinDuration)
			}
			if opts.Rate < 1 {
				return admin.Usagef("--rate %d: at least one transaction per second", opts.Rate)
			}
			if c.format != formatText {
				return admin.Usagef("the demo has no JSON output: leave -o out")
			}
			return demo.Run(cmd.Context(), opts, c.out)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&mysql, "mysql", false, "use MySQL; unpacks it when the machine has none (640 MB, once)")
	flags.BoolVar(&mariaDB, "mariadb", false, "use MariaDB")
	flags.StringVar(&opts.Kafka, "kafka", "", "publish to the Kafka broker at `host:port`")
	flags.StringVar(&opts.RocketMQ, "rocketmq", "", "publish to the RocketMQ whose name server is at `host:port`")
	flags.DurationVar(&opts.Duration, "duration", opts.Duration, "how long the shop is open")
	flags.IntVar(&opts.Rate, "rate", opts.Rate, "business transactions per second")
	flags.BoolVar(&opts.Keep, "keep", false, "let everything run after the account, until Ctrl-C")
	cmd.MarkFlagsMutuallyExclusive("mysql", "mariadb")
	cmd.MarkFlagsMutuallyExclusive("kafka", "rocketmq")
	return cmd
}
