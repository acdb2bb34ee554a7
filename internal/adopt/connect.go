package adopt

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/doctor"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// login is the account of this run's connections.
type login struct {
	user     string
	password setting.Secret
	file     string // that holds the password; "" when it was typed or is in the environment
	ofRelay  bool   // user and password are those that the relay takes from the environment
}

// account is the relay's.
type account struct {
	name         string // source.user
	host         string
	password     setting.Secret
	passwordFile string // source.password_file; "" when the environment has the password, or there is none
	fresh        bool   // the file is to be written
	create       bool   // the account is to be made
}

func (a account) String() string { return a.name + "@" + a.host }

// serverFacts are what the statements depend on.
type serverFacts struct {
	info    server.Info
	account string // CURRENT_USER() of the login
}

// String names the server for people.
func (f serverFacts) String() string {
	name := map[outbox.Flavor]string{outbox.MySQL: "MySQL", outbox.MariaDB: "MariaDB"}[f.info.Flavor]
	return fmt.Sprintf("%s %d.%d.%d", name, f.info.Major, f.info.Minor, f.info.Patch)
}

// loginStep finds the server and decides on the relay's account.
type loginStep struct{ *setup }

// connect asks for address and login until the server answers, and decides on the relay's account.
func (s loginStep) connect(ctx context.Context) error {
	return s.settle(ctx, func(again bool) error { return s.askLogin(ctx, again) }, func() error { return s.tryLogin(ctx) })
}

func (s loginStep) askLogin(ctx context.Context, again bool) error {
	if err := s.question(ctx, &s.Address, again, "--address", "Address of the database (host:port, or the path of its socket)", "127.0.0.1:3306"); err != nil {
		return err
	}
	if s.User == "" && s.env("SOURCE_USER") != "" {
		s.User, s.login.ofRelay = s.env("SOURCE_USER"), true
	}
	if err := s.question(ctx, &s.User, again, "--user", "Account that looks at it (an administrator's, or the relay's own)", "root"); err != nil {
		return err
	}
	l := login{user: s.User, ofRelay: s.login.ofRelay && s.User == s.env("SOURCE_USER")}
	var err error
	switch {
	case s.PasswordFile != "" && !again:
		l.file = s.PasswordFile
		l.password, err = readSecret("source.password_file", l.file)
	case l.ofRelay && s.env("SOURCE_PASSWORD") != "":
		l.password = setting.NewSecret(s.env("SOURCE_PASSWORD"))
	case l.ofRelay && s.env("SOURCE_PASSWORD_FILE") != "":
		l.password, err = readSecret("source.password_file", s.env("SOURCE_PASSWORD_FILE"))
	case s.terminal != nil:
		var typed string
		typed, err = s.terminal.secret(ctx, "Password of "+l.user)
		l.password = setting.NewSecret(typed)
	}
	s.login = l
	return err
}

// readSecret reads a password as the relay does.
func readSecret(path, file string) (setting.Secret, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		var reason *os.PathError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return setting.Secret{}, faults(config.Fault{Path: path, Value: file, Reason: "cannot be read: " + err.Error()})
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return setting.Secret{}, faults(config.Fault{Path: path, Value: file, Reason: "is empty: write the password into it"})
	}
	return setting.NewSecret(text), nil
}

func (s loginStep) tryLogin(ctx context.Context) error {
	s.content = content{address: s.Address, state: s.Files.State, user: cmp.Or(s.User, "unknown")}
	err := s.withDatabase(ctx, func(ctx context.Context, db *sql.DB) (err error) {
		if s.server.info, err = server.Inspect(ctx, db); err != nil {
			return err
		}
		if info := s.server.info; info.Reader {
			return faults(found("source.address", s.Address, server.Finding{What: "the server is a reader of an Aurora cluster: it takes no writes and has no binlog", Fix: info.Cure(server.Primary)}))
		}
		if err = db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&s.server.account); err != nil {
			return err
		}
		return s.decideAccount(ctx, db)
	})
	var wrong *config.Faults
	if err == nil || errors.As(err, &wrong) || ctx.Err() != nil {
		return err
	}
	path, value := "source.address", s.Address
	if class := server.Classify(err); class == server.Service {
		path, value = "source.user", s.User
	}
	return faults(found(path, value, server.Finding{What: err.Error(), Fix: doctor.ConnectFix(err, s.User)}))
}

// withDatabase calls f with a connection of the login, and bounds the time.
func (s *setup) withDatabase(ctx context.Context, f func(context.Context, *sql.DB) error) (err error) {
	cfg, err := s.parse()
	if err != nil {
		return err
	}
	db, err := app.OpenDatabase(s.as(cfg, s.login))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f(ctx, db)
}

// decideAccount takes the account of the login, unless that may create others: then it is an administrator's, and the relay gets its own.
func (s loginStep) decideAccount(ctx context.Context, db *sql.DB) error {
	creates, err := server.MayCreateUsers(ctx, db)
	if err != nil {
		return err
	}
	name, host := s.Account, "%"
	if at := strings.LastIndexByte(name, '@'); at >= 0 {
		name, host = name[:at], name[at+1:]
	}
	name = cmp.Or(s.env("SOURCE_USER"), name) // the relay takes that one
	switch {
	case name == "" && creates:
		name = "canal_outbox"
	case name == "":
		name = s.login.user
	}
	s.account = account{name: name, host: host}
	if name == s.login.user {
		at := strings.LastIndexByte(s.server.account, '@')
		s.account.host, s.account.password = s.server.account[at+1:], s.login.password
		s.account.passwordFile = s.login.file
		if !s.login.ofRelay && s.login.file == "" && s.login.password.Set() {
			s.account.passwordFile, s.account.fresh = s.ownPasswordFile(), true
		}
		return nil
	}
	s.account.create = true
	return s.decidePassword(ctx, db)
}

// ownPasswordFile is the file that the systemd unit of the project reads, too.
func (s loginStep) ownPasswordFile() string {
	return filepath.Join(filepath.Dir(s.Files.Config), "mysql-password")
}

// decidePassword takes the password that is given, that of an earlier run, or makes one.
func (s loginStep) decidePassword(ctx context.Context, db *sql.DB) (err error) {
	a := &s.account
	switch own := s.ownPasswordFile(); {
	case s.AccountPasswordFile != "":
		a.passwordFile = s.AccountPasswordFile
		a.password, err = readSecret("source.password_file", a.passwordFile)
	case s.env("SOURCE_PASSWORD") != "":
		a.password = setting.NewSecret(s.env("SOURCE_PASSWORD"))
	case s.env("SOURCE_PASSWORD_FILE") != "":
		a.password, err = readSecret("source.password_file", s.env("SOURCE_PASSWORD_FILE"))
	case exists(own):
		a.passwordFile = own
		a.password, err = readSecret("source.password_file", own)
	default:
		if err := s.unused(ctx, db); err != nil {
			return err
		}
		a.passwordFile, a.fresh = own, true
		a.password, err = newPassword()
	}
	return err
}

// unused refuses an account that is there and has a password that is not known here.
func (s loginStep) unused(ctx context.Context, db *sql.DB) error {
	var there bool
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) > 0 FROM mysql.user WHERE user = ? AND host = ?", s.account.name, s.account.host).Scan(&there)
	if server.Classify(err) == server.Service { // it may not be seen; the statement that makes it leaves an existing one as it is
		return nil
	}
	if err != nil || !there {
		return err
	}
	return faults(config.Fault{Path: "source.user", Value: s.account.name, Source: "--account", Reason: fmt.Sprintf("the account %s is there, and its password is not known here\n"+
		"  fix: give a file with it (--account-password-file), or choose another account (--account)", server.QuoteAccount(s.account.String()))})
}

// newPassword makes one that the usual rules of servers accept: letters of both cases, digits and other characters.
func newPassword() (setting.Secret, error) {
	const letters, length = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789._-", 32
	for {
		var b strings.Builder
		for range length {
			n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
			if err != nil {
				return setting.Secret{}, fmt.Errorf("make a password: %w", err)
			}
			b.WriteByte(letters[n.Int64()])
		}
		text := b.String()
		if strings.ContainsAny(text, "._-") && strings.ContainsAny(text, "23456789") && strings.ToLower(text) != text && strings.ToUpper(text) != text {
			return setting.NewSecret(text), nil
		}
	}
}

// client is the command line of the server's client, for an administrator.
func (s *setup) client() string {
	program, user := "mysql", "ADMINISTRATOR"
	if s.server.info.Flavor == outbox.MariaDB {
		program = "mariadb"
	}
	if s.account.create {
		user = s.login.user
	}
	if strings.HasPrefix(s.Address, "/") {
		return program + " --socket=" + word(s.Address) + " --user=" + word(user) + " -p"
	}
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		host, port = s.Address, "3306"
	}
	return fmt.Sprintf("%s --host=%s --port=%s --user=%s -p", program, word(host), port, word(user))
}
