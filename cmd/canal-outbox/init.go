package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/adopt"
)

const initHelp = `Makes the first configuration for a table that is there. It looks at the server, the table and the
broker, picks the preset that fits the table, and writes three files: the configuration, the password
of the relay's account, and the SQL that an administrator runs for the account, its privileges, a
missing index and the table of the lease. Then it runs doctor and says what to run next. On a terminal
it asks for what is missing and shows all of it before it writes. It replaces no file without --force.

--user may be an administrator: then the SQL makes an account for the relay. An account that may not
create others is the relay's own. --apply runs the SQL with --user. The variables of the configuration
answer too (CANAL_OUTBOX_SOURCE_ADDRESS, CANAL_OUTBOX_TABLES_0_NAME, CANAL_OUTBOX_SINK_KAFKA_BROKERS);
CANAL_OUTBOX_SOURCE_USER and its password are those of the relay's account.`

func newInit(c *cli) *cobra.Command {
	var a adopt.Answers
	cmd := &cobra.Command{
		Use: "init", Short: "make the configuration and the SQL for a table that is there", Args: cobra.NoArgs, Long: initHelp,
		Example: `  canal-outbox init
  canal-outbox init --address db.internal:3306 --user root --password-file /root/mysql --table shop.t_local_message --kafka 10.0.0.7:9092 --yes
  canal-outbox init --address db.internal:3306 --user relay --password-file /run/secrets/mysql --table shop.t_local_message --rocketmq 10.0.0.5:9876 --out relay.yaml --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Files.Config == "" {
				a.Files.Config = c.configPath
			}
			result, err := adopt.Run(cmd.Context(), a, os.Environ(), adopt.NewTerminal(c.in, c.err, c.words))
			if err != nil {
				return err
			}
			if err := c.showInit(result); err != nil {
				return err
			}
			if n := result.Faults(); n > 0 {
				return fmt.Errorf("the files are written, and doctor found %d fault(s) that must be fixed before a start", n)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.Address, "address", "", "`host:port` of the database, or the path of its socket")
	f.StringVar(&a.User, "user", "", "`account` that looks at the database")
	f.StringVar(&a.PasswordFile, "password-file", "", "`file` with its password")
	f.StringVar(&a.Account, "account", "", "the relay's account, `name` or name@host (default: canal_outbox, or --user if that may not create accounts)")
	f.StringVar(&a.AccountPasswordFile, "account-password-file", "", "`file` with the password of the relay's account (default: a new password in a new file)")
	f.StringVar(&a.Mapping.Table, "table", "", "`schema.table`, or a pattern")
	f.StringVar(&a.Mapping.Topic, "topic", "", "topic, or `rule` such as order.{event_type}, where no column holds it")
	f.StringToStringVar(&a.Mapping.Columns, "column", nil, "`role=column` that the preset does not find; repeatable")
	f.StringToStringVar(&a.Mapping.Codes, "code", nil, "`status=code` that differs from the preset, such as pending=NEW; repeatable")
	f.StringSliceVar(&a.Broker.Kafka, "kafka", nil, "`host:port` of a Kafka broker; repeatable")
	f.StringSliceVar(&a.Broker.RocketMQ, "rocketmq", nil, "`host:port` of a RocketMQ name server; repeatable")
	f.BoolVar(&a.Broker.Stdout, "stdout", false, "print the messages instead of a broker")
	f.StringVar(&a.Files.State, "state", "", "state `directory` of the relay (default /var/lib/canal-outbox)")
	f.StringVar(&a.Files.Config, "out", "", "`file` for the configuration (default: that of --config)")
	f.StringVar(&a.Files.SQL, "sql-out", "", "`file` for the SQL (default: next to the configuration)")
	f.BoolVar(&a.Apply, "apply", false, "run the SQL with --user")
	f.BoolVar(&a.Yes, "yes", false, "ask for no confirmation")
	f.BoolVar(&a.Files.Force, "force", false, "replace existing files")
	return cmd
}

// showInit prints what was made, what doctor found, and the next commands.
func (c *cli) showInit(r *adopt.Result) error {
	err := c.explain(r, func(w io.Writer) {
		line(w, "written\t%s", r.Config)
		if r.PasswordFile != "" {
			line(w, "\t%s (the password, mode 0600)", r.PasswordFile)
		}
		if r.SQL != "" {
			line(w, "\t%s (%d statements%s)", r.SQL, len(r.Statements), map[bool]string{true: ", they were run"}[r.Applied])
		}
		line(w, "\ndoctor, with the account %s:", r.CheckedAs)
		writeFindings(w, r.Findings)
	})
	if err != nil || c.format == formatJSON {
		return err
	}
	writeStatements(c.out, c.words, r.Findings) // statements and commands are the same in every language
	if len(r.Statements) > 0 && !r.Applied {
		line(c.out, "\n%s\n%s", c.words.Text("-- "+r.SQL+", without the password:"), strings.Join(r.Statements, "\n"))
	}
	line(c.out, "\n%s", c.words.Text("next:"))
	for _, command := range r.Next {
		line(c.out, "  %s", command)
	}
	return nil
}
