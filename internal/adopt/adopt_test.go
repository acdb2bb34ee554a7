package adopt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/adopt"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/test/layouts"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// place is a database with a schema, and a directory for the files.
type place struct {
	t      *testing.T
	db     *testkit.Database
	schema string
	dir    string
}

func newPlace(t *testing.T, flavor testkit.Flavor) *place {
	t.Helper()
	db := testkit.SharedDatabase(t, flavor)
	return &place{t, db, db.CreateSchema(t), t.TempDir()}
}

func (p *place) exec(query string) {
	p.t.Helper()
	testkit.Exec(p.t, p.db.Connect(p.t, p.schema), query)
}

func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

// answers are complete; the account is the schema's, because accounts outlive a test.
func (p *place) answers(table string) adopt.Answers {
	p.t.Helper()
	p.t.Cleanup(func() { testkit.Exec(p.t, p.db.Root(), "DROP USER IF EXISTS '"+p.account()+"'@'%'") })
	return adopt.Answers{
		Address: p.db.Addr(), User: "root", Account: p.account(), Mapping: adopt.Mapping{Table: p.schema + "." + table}, Broker: adopt.Broker{Stdout: true},
		Files: adopt.Files{Config: p.file("canal-outbox.yaml"), State: p.file("state")}, Yes: true,
	}
}

func (p *place) account() string { return "relay_" + p.schema }

// environment has no listener, whose port other tests may use.
var environment = []string{"CANAL_OUTBOX_ADMIN_LISTEN="}

func (p *place) run(a adopt.Answers) (*adopt.Result, error) {
	return adopt.Run(p.t.Context(), a, environment, nil)
}

// names are the files in the directory.
func (p *place) names() (all []string) {
	entries, err := os.ReadDir(p.dir)
	testkit.Must(p.t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func (p *place) nothingIsWritten() {
	p.t.Helper()
	if names := p.names(); len(names) > 0 {
		p.t.Errorf("files: %v", names)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	return string(data)
}

// onBoth runs a test on both servers.
func onBoth(t *testing.T, test func(t *testing.T, flavor testkit.Flavor)) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) { test(t, flavor) })
	}
}

// Each layout gets its preset, an account that has every privilege, and a configuration without a fault. The database is changed by the
// statements alone.
func TestG19_EachLayoutGetsItsPreset(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		for _, l := range slices.Concat(layouts.All(), layouts.LogOnly()) {
			t.Run(l.Name, func(t *testing.T) {
				p := newPlace(t, flavor)
				p.exec(l.Create())
				a := p.answers(l.Table)
				a.Apply = true
				result, err := p.run(a)
				testkit.Must(t, err)
				for _, f := range result.Findings {
					if f.Severity == server.Fault || f.Severity == server.Warning && strings.Contains(f.Fix, "GRANT") || f.Subject == "lease" && f.Severity != server.OK {
						t.Errorf("%+v", f)
					}
				}
				preset, _, _ := strings.Cut(strings.TrimPrefix(l.Config, "preset: "), ",")
				text := read(t, result.Config)
				if !strings.Contains(text, "preset: "+preset+" ") {
					t.Errorf("not the preset %s:\n%s", preset, text)
				}
				if !result.Applied || result.CheckedAs != p.account() || result.Next[0] != "canal-outbox run --config "+result.Config {
					t.Errorf("%+v", result)
				}
				if lacksIndex, made := l.Name == "A2", strings.Contains(read(t, result.SQL), "idx_outbox_sweep"); lacksIndex != made {
					t.Errorf("index %v, statement %v", lacksIndex, made)
				}
				password := strings.TrimSpace(read(t, result.PasswordFile))
				for _, path := range []string{result.PasswordFile, result.SQL} {
					if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
						t.Errorf("%s: %v, %v", path, info.Mode(), err)
					}
				}
				if strings.Contains(text+strings.Join(result.Statements, ""), password) || !strings.Contains(read(t, result.SQL), password) {
					t.Error("the password is in the configuration or in what is shown, or not in the SQL")
				}
			})
		}
	})
}

// fault is one that an answer should get.
type fault struct {
	name   string
	change func(p *place, a *adopt.Answers)
	want   []string // in the message
}

// Each wrong answer names its key, the flag and the cure, and leaves nothing.
func TestWrongAnswers(t *testing.T) {
	free := testkit.FreeAddress(t)
	cases := []fault{
		{"no host:port", func(_ *place, a *adopt.Answers) { a.Address = "db:x:y" }, []string{`source.address = "db:x:y" (from --address)`, "is not host:port"}},
		{"unreachable", func(_ *place, a *adopt.Answers) { a.Address = free }, []string{"source.address = \"" + free + `" (from --address)`, "fix: check source.address, that the server runs"}},
		{"wrong password", func(p *place, a *adopt.Answers) {
			a.PasswordFile = p.file("../secret")
			testkit.Must(p.t, os.WriteFile(a.PasswordFile, []byte("canary-7c1\n"), 0o600))
		}, []string{`source.user = "root" (from --user)`, "fix: correct source.user and its password"}},
		{"no password file", func(p *place, a *adopt.Answers) { a.PasswordFile = "/nonexistent/secret" }, []string{`source.password_file = "/nonexistent/secret" (from --password-file)`, "no such file"}},
		{"no such table", func(_ *place, a *adopt.Answers) { a.Mapping.Table += "_x" }, []string{"_x\" (from --table)", "there is no such table", "fix: make it: canal-outbox migrate"}},
		{"no schema", func(_ *place, a *adopt.Answers) { a.Mapping.Table = "t_local_message" }, []string{`tables[0].name = "t_local_message" (from --table)`}},
		{"a view", func(_ *place, a *adopt.Answers) {
			a.Mapping.Table = strings.Replace(a.Mapping.Table, "t_local_message", "messages", 1)
		}, []string{"it is a view", "fix: map the table below"}},
		{"a pattern without tables", func(_ *place, a *adopt.Answers) { a.Mapping.Table = "nowhere.t_{00..63}" }, []string{"(from --table)", "matches no table"}},
		{"another engine", func(_ *place, a *adopt.Answers) {
			a.Mapping.Table = strings.Replace(a.Mapping.Table, "t_local", "myisam", 1)
		}, []string{"its engine is MyISAM", "ENGINE=InnoDB"}},
		{"no preset", func(_ *place, a *adopt.Answers) {
			a.Mapping.Table = strings.Replace(a.Mapping.Table, "t_local_message", "note", 1)
		}, []string{
			"no preset fits this table", "{id: id, message_id: id, body: text}", "no column is mapped to topic", "no column is mapped to status", "--column ROLE=COLUMN",
		}},
		{"numbers of no preset", func(_ *place, a *adopt.Answers) {
			a.Mapping.Table = strings.Replace(a.Mapping.Table, "t_local_message", "mq", 1)
		}, []string{
			`tables[0].codes = "state" (from --code)`, "the meaning of this column's values is not known", `"0" (2 rows), "1" (1 row)`, "fix: --code pending=VALUE",
		}},
		{"words of no preset", func(_ *place, a *adopt.Answers) {
			a.Mapping.Table = strings.Replace(a.Mapping.Table, "t_local_message", "mq_words", 1)
		}, []string{
			`tables[0].codes = "state" (from --code)`, `it has "待发送" (1 row)`, // and none that was sent
		}},
		{"an unknown role", func(_ *place, a *adopt.Answers) { a.Mapping.Columns = map[string]string{"boddy": "text"} }, []string{"(from --column)", `"boddy" is unknown`}},
		{"an unreachable broker", func(_ *place, a *adopt.Answers) { a.Broker = adopt.Broker{Kafka: []string{free}} }, []string{
			"sink.kafka.brokers = \"" + free + `" (from --kafka)`, "the broker does not take messages", "fix: check the addresses",
		}},
		{"unreachable name servers", func(_ *place, a *adopt.Answers) { a.Broker = adopt.Broker{RocketMQ: []string{free}} }, []string{
			"sink.rocketmq.name_servers = \"" + free + `" (from --rocketmq)`, "the broker does not take messages", "fix: check the addresses",
		}},
		{"no broker address", func(_ *place, a *adopt.Answers) { a.Broker = adopt.Broker{RocketMQ: []string{"mq"}} }, []string{`sink.rocketmq.name_servers[0] = "mq" (from --rocketmq)`, "is not host:port"}},
		{"no directory", func(_ *place, a *adopt.Answers) { a.Files.Config = "/proc/nowhere/canal-outbox.yaml" }, []string{"(from --out)", "cannot be written", "--out"}},
		{"an account with an unknown password", func(p *place, a *adopt.Answers) {
			testkit.Must(p.t, p.db.CreateUser(p.t.Context(), p.account(), "other"))
		}, []string{"source.user = ", "(from --account)", "its password is not known", "fix: give a file with it (--account-password-file)"}},
	}
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				p := newPlace(t, flavor)
				p.exec(layouts.All()[0].Create())
				p.exec("CREATE VIEW messages AS SELECT * FROM t_local_message")
				p.exec(strings.Replace(layouts.All()[3].Create(), "local_message_table", "myisam_message", 1) + " ENGINE=MyISAM")
				p.exec("CREATE TABLE note (id INT PRIMARY KEY, text TEXT)")
				p.exec("CREATE TABLE mq (id INT PRIMARY KEY, topic VARCHAR(20), payload TEXT, state INT)")
				p.exec("INSERT INTO mq VALUES (1, 'a', 'b', 0), (2, 'a', 'b', 0), (3, 'a', 'b', 1)")
				p.exec("CREATE TABLE mq_words (id INT PRIMARY KEY, topic VARCHAR(20), payload TEXT, state VARCHAR(20) CHARACTER SET utf8mb4)")
				p.exec("INSERT INTO mq_words VALUES (1, 'a', 'b', '待发送')")
				a := p.answers("t_local_message")
				c.change(p, &a)
				_, err := p.run(a)
				var wrong *config.Faults
				if !errors.As(err, &wrong) {
					t.Fatalf("%v", err)
				}
				for _, part := range append(c.want, "nothing was written") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("not in the message: %s\n%v", part, err)
					}
				}
				if strings.Contains(err.Error(), "canary") {
					t.Errorf("a password is shown: %v", err)
				}
				p.nothingIsWritten()
			})
		}
	})
}

// What only a person can decide is refused, and what is missing is wrong usage.
func TestDecisions(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	p.exec(layouts.All()[0].Create())
	code := func(a adopt.Answers, want operator.Code, part string) {
		t.Helper()
		_, err := p.run(a)
		var coded *operator.Error
		if !errors.As(err, &coded) || coded.Code != want || !strings.Contains(err.Error(), part) {
			t.Errorf("want %s, %q: %v", want, part, err)
		}
	}
	a := p.answers("t_local_message")
	a.Yes = false
	code(a, operator.CodeRefused, "add --yes to write it")
	a.Yes, a.Address = true, ""
	code(a, operator.CodeUsage, "--address is missing")
	a = p.answers("t_local_message")
	a.User = ""
	code(a, operator.CodeUsage, "--user is missing")
	a = p.answers("t_local_message")
	a.Broker = adopt.Broker{}
	code(a, operator.CodeUsage, "--kafka HOST:PORT")
	a.Broker = adopt.Broker{Stdout: true, Kafka: []string{"a:1"}}
	code(a, operator.CodeUsage, "name one of them")
	p.nothingIsWritten()

	a = p.answers("t_local_message")
	testkit.Must(t, os.WriteFile(a.Files.Config, []byte("mine"), 0o600))
	code(a, operator.CodeRefused, "--force replaces it")
	testkit.Must(t, os.Remove(a.Files.Config))
	testkit.Must(t, os.WriteFile(p.file("canal-outbox.sql"), []byte("mine"), 0o600))
	code(a, operator.CodeRefused, "--force replaces it")
	if names := p.names(); len(names) != 1 || read(t, p.file("canal-outbox.sql")) != "mine" {
		t.Errorf("files: %v", names)
	}
	a.Files.Force = true
	if _, err := p.run(a); err != nil || read(t, p.file("canal-outbox.sql")) == "mine" {
		t.Errorf("with --force: %v", err)
	}
	testkit.Must(t, os.WriteFile(a.Files.Config, []byte("mine"), 0o600))
	password := read(t, p.file("mysql-password"))
	if _, err := p.run(a); err != nil || read(t, a.Files.Config) == "mine" || read(t, p.file("mysql-password")) != password {
		t.Errorf("again: %v", err)
	}
	// No table is named: those that fit are.
	a = p.answers("")
	a.Mapping.Table, a.Files.Config = "", p.file("other.yaml")
	if _, err := p.run(a); err == nil || !strings.Contains(err.Error(), "tables[0].name (from --table): is missing") || !strings.Contains(err.Error(), p.schema+".t_local_message (preset t_local_message)") {
		t.Errorf("without a table: %v", err)
	}
}

// An interrupt at any time leaves nothing.
func TestInterrupted(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	p.exec(layouts.All()[0].Create())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := adopt.Run(ctx, p.answers("t_local_message"), environment, nil); err == nil || !strings.Contains(err.Error(), "interrupted: nothing was written") {
		t.Errorf("%v", err)
	}
	p.nothingIsWritten()
}

// The environment answers like flags: its user is the relay's, and its password is not written. An answer that differs from it is refused.
func TestEnvironment(t *testing.T) {
	p := newPlace(t, testkit.MariaDB)
	p.exec(layouts.All()[0].Create())
	a := p.answers("t_local_message")
	environ := append(slices.Clone(environment), "CANAL_OUTBOX_SOURCE_ADDRESS="+a.Address, "CANAL_OUTBOX_SOURCE_USER="+a.Account, "CANAL_OUTBOX_SOURCE_PASSWORD=Canary-77a",
		"CANAL_OUTBOX_TABLES_0_NAME="+a.Mapping.Table)
	a.Address, a.Account, a.Mapping.Table, a.Apply = "", "", "", true // with the administrator's flags
	result, err := adopt.Run(t.Context(), a, environ, nil)
	testkit.Must(t, err)
	text := read(t, result.Config)
	if result.PasswordFile != "" || result.Faults() > 0 || result.CheckedAs != p.account() || strings.Contains(text, "Canary") || !strings.Contains(text, "CANAL_OUTBOX_SOURCE_PASSWORD") {
		t.Errorf("%+v\n%s", result, text)
	}
	a.Files.Config, a.Mapping.Table = p.file("other.yaml"), "shop.other"
	var coded *operator.Error
	if _, err := adopt.Run(t.Context(), a, environ, nil); !errors.As(err, &coded) || coded.Code != operator.CodeUsage || !strings.Contains(err.Error(), "CANAL_OUTBOX_TABLES_0_NAME is "+p.schema) {
		t.Errorf("%v", err)
	}
}

// An account without a privilege in the schema sees no table, and learns which privilege shows it. Its own --apply is refused with the statement.
func TestAccountsWithoutPrivileges(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		p := newPlace(t, flavor)
		p.exec(layouts.All()[0].Create())
		a := p.answers("t_local_message")
		a.User, a.Account, a.PasswordFile = p.account(), "", filepath.Join(t.TempDir(), "secret")
		testkit.Must(t, os.WriteFile(a.PasswordFile, []byte("weak\n"), 0o600))
		testkit.Must(t, p.db.CreateUser(t.Context(), a.User, "weak"))
		_, err := p.run(a)
		var wrong *config.Faults
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "GRANT SELECT, UPDATE ON `"+p.schema+"`.`t_local_message` TO '"+a.User+"'@'%'") {
			t.Errorf("%v", err)
		}
		p.nothingIsWritten()
		testkit.Exec(t, p.db.Root(), "GRANT SELECT ON "+p.schema+".* TO '"+a.User+"'@'%'")
		a.Apply = true
		if _, err = p.run(a); err == nil || !strings.Contains(err.Error(), "the files are written, and the database refused statement 1 of") || !strings.Contains(err.Error(), "--user=ADMINISTRATOR -p < ") {
			t.Errorf("%v", err)
		}
		if text := read(t, p.file("canal-outbox.yaml")); !strings.Contains(text, "password_file: "+a.PasswordFile) {
			t.Errorf("%s", text)
		}
		text := read(t, p.file("canal-outbox.sql"))
		if !strings.Contains(text, "GRANT UPDATE ON") || strings.Contains(text, "CREATE USER") {
			t.Errorf("%s", text)
		}
		for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(text), ";"), ";\n") { // an administrator does it
			testkit.Exec(t, p.db.Root(), statement)
		}
		a.Files.Force = true
		if result, err := p.run(a); err != nil || result.Faults() > 0 || result.SQL != "" {
			t.Errorf("%+v, %v", result, err)
		}
	})
}

// A pattern stands for all its tables: each gets its privilege.
func TestPattern(t *testing.T) {
	p := newPlace(t, testkit.MySQL)
	for _, name := range []string{"t_local_message_00", "t_local_message_01"} {
		p.exec(strings.Replace(layouts.All()[0].Create(), "`t_local_message`", name, 1))
	}
	a := p.answers("t_local_message_{00..63}")
	a.Apply = true
	result, err := p.run(a)
	testkit.Must(t, err)
	if text := strings.Join(result.Statements, "\n"); result.Faults() > 0 || strings.Count(text, "GRANT SELECT, UPDATE ON") != 2 {
		t.Errorf("%+v", result)
	}
}
