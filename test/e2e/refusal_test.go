package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// What cannot work is said once, all of it, with what to do, and nothing is written or published.

const accountPassword = "canary-7d1f"

// attempt is a configuration that must be refused, with one row that no refused relay may touch.
type attempt struct {
	db     *testkit.Database
	schema string
	dir    string
	source string // of the configuration; the database's root when empty
	tables string // of the configuration; the preset's table when empty
}

func newAttempt(t *testing.T, db *testkit.Database) *attempt {
	t.Helper()
	a := &attempt{db: db, schema: db.CreateSchema(t), dir: filepath.Join(t.TempDir(), "state")}
	ddl, err := migrations.DDL("outbox", a.schema+".t_local_message")
	testkit.Must(t, err)
	testkit.Exec(t, db.Root(), ddl)
	testkit.Exec(t, db.Root(), "INSERT INTO "+a.schema+".t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', '1', 'orders', 'x')")
	a.source = fmt.Sprintf("address: %q, user: root", db.Addr())
	a.tables = fmt.Sprintf("{name: %s.t_local_message, preset: t_local_message}", a.schema)
	return a
}

// yaml is the configuration; what would be published goes to standard output.
func (a *attempt) yaml() string {
	return fmt.Sprintf("source: {%s}\ntables: [%s]\nsink: {stdout: {}}\ncheckpoint: {dir: %q}\nadmin: {listen: \"\"}\nlog: {format: text}\n",
		a.source, a.tables, a.dir)
}

// run starts the program and returns its end.
func run(t *testing.T, yaml string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "canal-outbox.yaml")
	testkit.Must(t, os.WriteFile(file, []byte(yaml), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, relay.Binary(t, ""), append([]string{"run", "--config", file}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("run: %v, %v\n%s", err, ctx.Err(), errOut.String())
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// refused starts the program and checks that it ends with the code and with one message that holds all the words.
func refused(t *testing.T, yaml string, code int, words ...string) {
	t.Helper()
	stdout, stderr, got := run(t, yaml)
	if got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	if stdout != "" {
		t.Errorf("published: %s", stdout)
	}
	for _, word := range words {
		if !strings.Contains(stderr, word) {
			t.Errorf("the message lacks %q", word)
		}
	}
	if n := strings.Count("\n"+stderr, "\ncanal-outbox: "); n != 1 {
		t.Errorf("%d messages instead of one", n)
	}
	for _, never := range []string{accountPassword, "goroutine ", "panic"} {
		if strings.Contains(stderr, never) {
			t.Errorf("the message shows %q", never)
		}
	}
	if t.Failed() {
		t.Logf("standard error:\n%s", stderr)
	}
}

// untouched checks that the row is as it was inserted and that no state was made.
func (a *attempt) untouched(t *testing.T) {
	t.Helper()
	var n int
	testkit.Must(t, a.db.Root().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+a.schema+
		".t_local_message WHERE status = 0 AND retry_count = 0 AND last_exec_time IS NULL AND updated_at = created_at").Scan(&n))
	if n != 1 {
		t.Error("the row was touched")
	}
	if _, err := os.Stat(a.dir); !os.IsNotExist(err) {
		t.Errorf("the state directory was made: %v", err)
	}
}

func TestConfigurationFaultsTogether(t *testing.T) {
	refused(t, `source: {address: "localhost:port", user: ""}
tables:
  - {name: nodot, preset: t_local_massage}
sink: {kafka: {brokers: []}, stdout: {}}
retry: {max: -1}
fallback: {batch: 100000}
admin: {listen: "0.0.0.0:9180"}
`, 1, "source.address", "source.user", "tables[0].name", "tables[0].preset", "t_local_message", "sink", "exactly one", "sink.kafka.brokers",
		"retry.max", "fallback.batch", "500", "admin", "token")
	refused(t, "source: {address: 127.0.0.1:3306, user: root, pasword: x}\ntables: [{name: a.b, preset: t_local_message}]\nsink: {stdout: {}}\n",
		1, "pasword", "1 |", "^")
	refused(t, "source: [", 1, "1")
}

// With log.format json every line on standard error is JSON, the last one too.
func TestEveryLineOfTheLogIsJSON(t *testing.T) {
	t.Setenv("CANAL_OUTBOX_SOURCE_USR", "relay")
	_, stderr, code := run(t, fmt.Sprintf("source: {address: 127.0.0.1:1, user: relay}\ntables: [{name: a.b, preset: t_local_message}]\n"+
		"sink: {stdout: {}}\ncheckpoint: {dir: %q}\nadmin: {listen: \"\"}\n", filepath.Join(t.TempDir(), "state")))
	if code != 1 || !strings.Contains(stderr, "CANAL_OUTBOX_SOURCE_USR") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	var last map[string]any
	for line := range strings.Lines(stderr) {
		last = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if text, _ := last["error"].(string); !strings.Contains(text, "connect to 127.0.0.1:1") {
		t.Errorf("the last line is %v", last)
	}
}

func TestUsageFaults(t *testing.T) {
	if _, stderr, code := run(t, "", "--accept-all"); code != 2 || !strings.Contains(stderr, "--accept-all") {
		t.Errorf("an unknown flag: exit code %d, %s", code, stderr)
	}
	_, stderr, code := run(t, "", "--config", "/no/such/file.yaml")
	if code != 1 || !strings.Contains(stderr, "/no/such/file.yaml") {
		t.Errorf("a missing configuration: exit code %d, %s", code, stderr)
	}
}

func TestDatabaseThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			t.Run("unreachable", func(t *testing.T) {
				a := newAttempt(t, db)
				address := testkit.FreeAddress(t)
				a.source = fmt.Sprintf("address: %q, user: root", address)
				refused(t, a.yaml(), 1, address, "refused", "source.address", "fix:")
				a.untouched(t)
			})
			t.Run("wrong password", func(t *testing.T) {
				a := newAttempt(t, db)
				a.source = fmt.Sprintf("address: %q, user: stranger, password: %s", db.Addr(), accountPassword)
				refused(t, a.yaml(), 1, "stranger", "password", "fix:", "source.user")
				a.untouched(t)
			})
			t.Run("missing grants", func(t *testing.T) {
				a := newAttempt(t, db)
				testkit.Must(t, db.CreateUser(t.Context(), "poor_"+a.schema, accountPassword, "SELECT ON "+a.schema+".*"))
				a.source = fmt.Sprintf("address: %q, user: poor_%s, password: %s", db.Addr(), a.schema, accountPassword)
				monitor := map[testkit.Flavor]string{testkit.MySQL: "REPLICATION CLIENT", testkit.MariaDB: "BINLOG MONITOR"}[flavor]
				refused(t, a.yaml(), 1, "nothing was written", "REPLICATION SLAVE", "GRANT "+monitor+" ON *.*",
					"GRANT UPDATE ON `"+a.schema+"`.`t_local_message`")
				a.untouched(t)
			})
			t.Run("tables that cannot be relayed", func(t *testing.T) { unfitTables(t, newAttempt(t, db)) })
		})
	}
}

// A33 and all else that may be wrong with a table, in one message.
func unfitTables(t *testing.T, a *attempt) {
	alter := func(name string, change ...string) {
		ddl, err := migrations.DDL("outbox", a.schema+"."+name)
		testkit.Must(t, err)
		testkit.Exec(t, a.db.Root(), ddl)
		for _, c := range change {
			testkit.Exec(t, a.db.Root(), "ALTER TABLE "+a.schema+"."+name+" "+c)
		}
	}
	alter("no_topic", "DROP COLUMN topic")
	alter("odd_types", "MODIFY COLUMN message_body GEOMETRY NULL", "MODIFY COLUMN retry_count VARCHAR(10) NOT NULL DEFAULT '0'")
	alter("chinese", "MODIFY COLUMN message_body LONGTEXT CHARACTER SET big5")
	alter("unsafe", "ENGINE = MyISAM")
	testkit.Exec(t, a.db.Root(), "CREATE VIEW "+a.schema+".seen AS SELECT * FROM "+a.schema+".t_local_message")
	var tables []string
	for _, name := range []string{"t_local_message", "missing", "no_topic", "odd_types", "chinese", "unsafe", "seen"} {
		tables = append(tables, fmt.Sprintf("{name: %s.%s, preset: t_local_message}", a.schema, name))
	}
	a.tables = strings.Join(tables, ", ")
	refused(t, a.yaml(), 1, "nothing was written",
		a.schema+".missing: there is no such table", "canal-outbox migrate",
		a.schema+".no_topic.topic: there is no such column", "tables[].columns.topic",
		a.schema+".odd_types.message_body: type geometry", a.schema+".odd_types.retry_count: type varchar(10)",
		a.schema+".chinese.message_body: its character set is big5", "CHARACTER SET utf8mb4",
		a.schema+".unsafe: its engine is MyISAM", "ENGINE=InnoDB",
		a.schema+".seen: it is a view")
	a.untouched(t)
}

func TestServerWithoutAUsableLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flavor testkit.Flavor
		args   []string
		words  []string
	}{
		{testkit.MySQL, []string{"--skip-log-bin"}, []string{"log_bin", "restart"}},
		{testkit.MariaDB, []string{"--skip-log-bin"}, []string{"log_bin", "restart"}},
		{testkit.MySQL, []string{"--binlog-format=STATEMENT"}, []string{"binlog_format", "statements", "ROW"}},
		{testkit.MariaDB, []string{"--binlog-format=STATEMENT"}, []string{"binlog_format", "statements", "ROW"}},
	} {
		t.Run(string(c.flavor)+c.args[0], func(t *testing.T) {
			a := newAttempt(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: c.flavor, Args: c.args}))
			a.tables += fmt.Sprintf(", {name: %s.missing, preset: order-chain}", a.schema) // reported in the same message
			refused(t, a.yaml(), 1, append(c.words, "nothing was written", "fix:", a.schema+".missing")...)
			a.untouched(t)
		})
	}
}
