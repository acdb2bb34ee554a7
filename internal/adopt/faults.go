package adopt

import (
	"context"
	"errors"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// flags are the flags of the answers, by the beginning of the key that a fault names.
var flags = []struct{ path, flag, variable string }{
	{"source.address", "--address", "SOURCE_ADDRESS"},
	{"source.user", "--user", ""},
	{"source.password", "--password-file", ""},
	{"tables[0].name", "--table", "TABLES_0_NAME"},
	{"tables[0].topic", "--topic", ""},
	{"tables[0].columns", "--column", ""},
	{"tables[0].codes", "--code", ""},
	{"tables[0]", "--table", "TABLES_0_NAME"},
	{"sink.kafka", "--kafka", "SINK_KAFKA_BROKERS"},
	{"sink.rocketmq", "--rocketmq", "SINK_ROCKETMQ_NAME_SERVERS"},
	{"checkpoint.dir", "--state", "CHECKPOINT_DIR"},
}

// faults is the error of wrong answers. Each fault names its key and the flag or the variable that it comes from.
func faults(all ...config.Fault) error {
	for i := range all {
		f := &all[i]
		f.Line, f.Column = 0, 0 // there is no file yet
		for _, one := range flags {
			if f.Source == "" && strings.HasPrefix(f.Path, one.path) {
				f.Source = one.flag
			}
		}
	}
	return &config.Faults{File: "nothing was written", Faults: all}
}

// named names the variables of answers that come from the environment.
func (s *setup) named(err error) error {
	var wrong *config.Faults
	if !errors.As(err, &wrong) {
		return err
	}
	for i := range wrong.Faults {
		f := &wrong.Faults[i]
		for _, one := range flags {
			if f.Source == one.flag && strings.HasPrefix(f.Path, one.path) && one.variable != "" && s.env(one.variable) != "" {
				f.Source = prefix + one.variable
			}
		}
	}
	return err
}

// found makes a fault of a finding.
func found(path, value string, f server.Finding) config.Fault {
	reason := f.What
	if !strings.HasPrefix(f.Subject, "sink") && f.Subject != value && f.Subject != "" {
		reason = f.Subject + ": " + reason
	}
	if f.Fix != "" {
		reason += "\n  fix: " + strings.ReplaceAll(f.Fix, "\n", "\n  ")
	}
	return config.Fault{Path: path, Value: value, Reason: reason}
}

// parse checks what is known of the configuration.
func (s *setup) parse() (*config.Config, error) {
	// The file of the password may not be there yet.
	environ := s.environ
	if s.env("SOURCE_PASSWORD") == "" && s.env("SOURCE_PASSWORD_FILE") == "" {
		environ = append(environ[:len(environ):len(environ)], "CANAL_OUTBOX_SOURCE_PASSWORD=unknown")
	}
	cfg, _, err := config.Parse(s.Files.Config, []byte(s.content.render()), environ, app.Sinks)
	var wrong *config.Faults
	if errors.As(err, &wrong) {
		return nil, faults(wrong.Faults...)
	}
	return cfg, err
}

// as is a configuration with another account.
func (s *setup) as(cfg *config.Config, l login) *config.Config {
	other := *cfg
	other.Source.User, other.Source.Password, other.Source.PasswordFile = l.user, l.password, setting.File{}
	return &other
}

// settle asks and tries until the answers are right; without a terminal the first fault is the error. again is true when the answers were
// wrong.
func (s *setup) settle(ctx context.Context, ask func(again bool) error, try func() error) error {
	for again := false; ; again = true {
		if err := ask(again); err != nil {
			return err
		}
		err := s.named(try())
		var wrong *config.Faults
		if err == nil || s.terminal == nil || !errors.As(err, &wrong) || ctx.Err() != nil {
			return err
		}
		for _, f := range wrong.Faults {
			s.terminal.say("  ! %s", strings.ReplaceAll(f.String(), "\n", "\n    "))
		}
	}
}

// question asks for an answer that is missing or was wrong. Without a terminal a missing one is wrong usage.
func (s *setup) question(ctx context.Context, answer *string, again bool, flag, text, otherwise string) (err error) {
	if *answer != "" && !again {
		return nil
	}
	if s.terminal == nil {
		if *answer == "" {
			return operator.Usagef("%s is missing, and there is no terminal to ask at: %s", flag, text)
		}
		return nil
	}
	if *answer != "" {
		otherwise = *answer
	}
	*answer, err = s.terminal.ask(ctx, text, otherwise)
	return err
}
