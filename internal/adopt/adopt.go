// Package adopt makes the first configuration for a table that is there: it looks at the server, the table and the broker, writes the
// configuration, the file of the account's password and the SQL of what the database lacks, and runs doctor on the result.
//
// Guarantees: before the files are written nothing is changed, in the database and on the disk. An existing file is replaced only with Force.
// The configuration is the last file to appear, and an error or an interrupt before that removes the others. A password is in the file of the
// password and in the SQL alone, both with mode 0600: never in the configuration, in an error or in what a person is shown. The package starts
// a goroutine for each question on a terminal, which ends with the answer or with the process.
package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// patience bounds each exchange before the files are written: a host that drops packets must not block it.
const patience = 30 * time.Second

// Answers are what a person or a script decides. What is empty is asked on a terminal, or has a default.
type Answers struct {
	Address             string // host:port, or the path of a unix socket
	User                string // the account that looks at the database: an administrator's, or the relay's own
	PasswordFile        string // its password; empty: none, unless it is typed or in the environment
	Account             string // the relay's account, NAME or NAME@HOST
	AccountPasswordFile string // its password, if it is to have a certain one
	Mapping             Mapping
	Broker              Broker
	Files               Files
	Apply               bool // run the SQL
	Yes                 bool // ask for no confirmation
}

// Mapping is what a table needs that cannot be seen.
type Mapping struct {
	Table   string            // schema.table, or a pattern
	Topic   string            // rule for the topic, where no column holds it
	Columns map[string]string // column by role
	Codes   map[string]string // code by status
}

// Broker is where messages go: one of the three.
type Broker struct {
	Kafka    []string // host:port
	RocketMQ []string // host:port of name servers
	Stdout   bool
}

// Files are where the result goes.
type Files struct {
	Config string // the configuration; the password is next to it
	SQL    string // empty: next to the configuration
	State  string // the relay's state directory
	Force  bool   // replace existing files
}

// Result is what was made.
type Result struct {
	Config       string           `json:"config"`
	PasswordFile string           `json:"password_file,omitempty"` // that was written; "" when the password was given
	SQL          string           `json:"sql,omitempty"`           // "" when the database lacks nothing
	Statements   []string         `json:"statements"`              // of the SQL, with the password masked
	Applied      bool             `json:"applied"`
	CheckedAs    string           `json:"checked_as"` // the account with which doctor looked
	Findings     []server.Finding `json:"findings"`   // of doctor
	Next         []string         `json:"next"`       // commands to run, in order
}

// Faults is how many findings a start would refuse.
func (r *Result) Faults() (n int) {
	for _, f := range r.Findings {
		if f.Severity == server.Fault {
			n++
		}
	}
	return n
}

// setup is one run.
type setup struct {
	Answers
	environ  []string
	terminal *Terminal // nil: everything is answered already

	login   login
	account account
	server  serverFacts
	content content
	tables  []*table.Table
	sql     []statement
}

// Run makes the files and returns what was found; environ is as os.Environ returns it, and its variables are those of the configuration. A
// wrong answer is a *config.Faults, a missing decision an *operator.Error.
func Run(ctx context.Context, answers Answers, environ []string, terminal *Terminal) (*Result, error) {
	s := &setup{Answers: answers, environ: environ, terminal: terminal}
	written, err := s.decide(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("interrupted: nothing was written, and the database is as it was")
	}
	if err != nil {
		return nil, err
	}
	return outcome{s}.finish(ctx, written)
}

// decide finds all answers and writes the files.
func (s *setup) decide(ctx context.Context) ([]file, error) {
	if err := s.prefill(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		loginStep{s}.connect, tableStep{s}.chooseTable, brokerStep{s}.chooseBroker, planStep{s}.plan, outcome{s}.agree,
	} {
		if err := step(ctx); err != nil {
			return nil, s.named(err)
		}
	}
	return outcome{s}.write(ctx)
}

// prefill takes the answers of the environment, and makes paths that hold in any working directory.
func (s *setup) prefill() error {
	for _, one := range []struct {
		flag, variable string
		answer         *string
	}{
		{"--address", "SOURCE_ADDRESS", &s.Address}, {"--table", "TABLES_0_NAME", &s.Mapping.Table}, {"--state", "CHECKPOINT_DIR", &s.Files.State},
	} {
		value := s.env(one.variable)
		if *one.answer != "" && value != "" && *one.answer != value {
			return operator.Usagef("%s %s: the variable %s%s is %s, and the relay would take that: give one of the two", one.flag, *one.answer, prefix, one.variable, value)
		}
		*one.answer = cmp.Or(*one.answer, value)
	}
	chosen := 0
	for _, one := range []bool{len(s.Broker.Kafka) > 0, len(s.Broker.RocketMQ) > 0, s.Broker.Stdout} {
		if one {
			chosen++
		}
	}
	if chosen > 1 {
		return operator.Usagef("--kafka, --rocketmq and --stdout: name one of them")
	}
	if s.Broker.Kafka == nil && s.Broker.RocketMQ == nil && !s.Broker.Stdout {
		s.Broker.Kafka, s.Broker.RocketMQ = list(s.env("SINK_KAFKA_BROKERS")), list(s.env("SINK_ROCKETMQ_NAME_SERVERS"))
	}
	s.Files.State = cmp.Or(s.Files.State, config.Default().Checkpoint.Dir)
	if s.Files.SQL == "" {
		s.Files.SQL = strings.TrimSuffix(s.Files.Config, filepath.Ext(s.Files.Config)) + ".sql"
	}
	for _, path := range []*string{&s.PasswordFile, &s.AccountPasswordFile, &s.Files.Config, &s.Files.SQL, &s.Files.State} {
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = whole
	}
	return s.free()
}

// prefix begins the variables of the configuration.
const prefix = "CANAL_OUTBOX_"

// env is the value of a variable of the configuration.
func (s *setup) env(name string) string {
	for _, setting := range s.environ {
		if value, found := strings.CutPrefix(setting, prefix+name+"="); found {
			return value
		}
	}
	return ""
}

// list splits values that are separated by commas.
func list(text string) (all []string) {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// outcome is what follows once all is decided.
type outcome struct{ *setup }

// agree shows what will be written and asks.
func (s outcome) agree(ctx context.Context) error {
	if s.Yes {
		return nil
	}
	if s.terminal == nil {
		return operator.Refusedf("nothing was written: it would write\n%s\nadd --yes to write it", s.preview())
	}
	s.terminal.show(s.preview())
	yes, err := s.terminal.yes(ctx, "Write these files?")
	if err == nil && !yes {
		err = operator.Refusedf("nothing was written")
	}
	return err
}

func (s outcome) preview() string {
	var b strings.Builder
	for _, f := range s.files() {
		fmt.Fprintf(&b, "%s:\n", f.path)
		text := string(f.data)
		if f.path == s.account.passwordFile {
			text = "(the password of the account, mode 0600)\n"
		}
		for line := range strings.Lines(s.masked(text)) {
			b.WriteString("  " + line)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// finish runs the SQL if that is wanted, then doctor.
func (s outcome) finish(ctx context.Context, written []file) (*Result, error) {
	result := &Result{Config: s.Files.Config, Statements: s.statements(), CheckedAs: s.account.name}
	for _, f := range written {
		switch f.path {
		case s.account.passwordFile:
			result.PasswordFile = f.path
		case s.Files.SQL:
			result.SQL = f.path
		}
	}
	if err := s.apply(ctx, result); err != nil {
		return nil, err
	}
	cfg, _, err := config.Load(s.Files.Config, s.environ, app.Sinks)
	if err != nil {
		return nil, fmt.Errorf("the files are written, but not right; please report this: %w", err)
	}
	if s.account.create && !result.Applied { // it cannot log in yet
		cfg, result.CheckedAs = s.as(cfg, s.login), s.login.user
	}
	result.Findings = s.known(app.Doctor(ctx, cfg), result)
	result.Next = s.next(result)
	return result, nil
}

// known refers findings whose statements are in the SQL to that.
func (s outcome) known(findings []server.Finding, result *Result) []server.Finding {
	for i := range findings {
		f := &findings[i]
		if f.SQL == "" || result.SQL == "" || result.Applied {
			continue
		}
		if !slices.ContainsFunc(app.Statements([]server.Finding{*f}), func(one string) bool { return !slices.Contains(result.Statements, one) }) {
			f.Fix, f.SQL = "run "+result.SQL, ""
		}
	}
	return findings
}

// next are the commands that a person runs now.
func (s outcome) next(result *Result) (commands []string) {
	suffix := ""
	if result.Config != defaultConfig {
		suffix = " --config " + word(result.Config)
	}
	if result.SQL != "" && !result.Applied {
		commands = append(commands, s.client()+" < "+word(result.SQL))
	}
	if len(commands) > 0 || result.Faults() > 0 {
		commands = append(commands, "canal-outbox doctor"+suffix)
	}
	return append(commands, "canal-outbox run"+suffix)
}

// defaultConfig is where commands look for the configuration.
const defaultConfig = "/etc/canal-outbox/canal-outbox.yaml"
