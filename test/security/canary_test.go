package security

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// aviary is a relay whose secrets are all canaries, and everything that it has printed.
type aviary struct {
	*child
	t      *testing.T
	db     *testkit.Database
	table  *relay.Table
	sink   func(secret string) string
	admin  string
	shown  map[string][]byte // by where it was shown
	number int
}

func newAviary(t *testing.T, flavor testkit.Flavor, sink func(secret string) string) *aviary {
	t.Helper()
	// The server writes the text of statements into its log with the rows.
	option := "--binlog-rows-query-log-events=ON"
	if flavor == testkit.MariaDB {
		option = "--binlog-annotate-row-events=ON"
	}
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Args: []string{option}})
	schema := db.CreateSchema(t)
	testkit.Must(t, db.CreateUser(t.Context(), "relay", databasePassword, grants(flavor, schema)...))
	a := &aviary{t: t, db: db, sink: sink, admin: testkit.FreeAddress(t), shown: map[string][]byte{}}
	a.table = relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	testkit.Exec(t, a.table.DB, "CREATE TABLE customer (id INT PRIMARY KEY, note TEXT)")
	a.child = newChild(t, a.yaml(databasePassword, brokerPassword, "json"))
	return a
}

func (a *aviary) yaml(database, broker, format string) string {
	return fmt.Sprintf("source: {address: %q, user: relay, password: %q}\ntables: [{name: %s, preset: t_local_message}]\nsink: {%s}\n"+
		"retry: {max: 2, backoff: {base: 100ms, max: 200ms}}\nlog: {level: debug, format: %s}\nadmin: {listen: %q, token: %q}",
		a.db.Addr(), database, a.table.FullName(), a.sink(broker), format, a.admin, adminToken)
}

func (a *aviary) keep(where string, what []byte) {
	a.number++
	a.shown[fmt.Sprintf("%02d %s", a.number, where)] = what
}

// commands runs every command that prints.
func (a *aviary) commands(when string) {
	a.t.Helper()
	for _, args := range []string{
		"doctor", "doctor -o json", "config print", "config validate", "status", "status -o json", "checkpoint show", "checkpoint history -o json",
		"checkpoint set --latest --dry-run", "gaps list", "sweep", "version",
		"messages list --status any", "messages list -o json", "messages stats", "messages show 2", "messages show 1 -o json", "messages trace 1", "messages trace 4",
		"messages retry --status failed --dry-run",
	} {
		a.keep(when+", "+args, []byte(printedBy(a.child, strings.Fields(args)...)))
	}
}

// ask records the answers of the admin endpoint with and without a token.
func (a *aviary) ask(when string) {
	a.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{
		"/", "/metrics", "/healthz", "/readyz", "/api/v1/status", "/api/v1/checkpoint", "/api/v1/checkpoint/history", "/api/v1/gaps", "/api/v1/status?token=" + wrongToken,
		"/api/v1/messages?status=any", "/api/v1/messages/stats", "/api/v1/messages/3", "/api/v1/messages/4/trace",
	} {
		for _, token := range []string{adminToken, wrongToken} {
			for _, method := range []string{"GET", "POST"} {
				r, err := http.NewRequest(method, "http://"+a.admin+path, strings.NewReader("{}"))
				testkit.Must(a.t, err)
				r.Header.Set("Authorization", "Bearer "+token)
				r.Header.Set("Content-Type", "application/json")
				response, err := client.Do(r)
				testkit.Must(a.t, err)
				answer, err := io.ReadAll(response.Body)
				testkit.Must(a.t, errors.Join(err, response.Body.Close()))
				var head bytes.Buffer
				testkit.Must(a.t, response.Header.Write(&head))
				a.keep(when+", "+method+" "+path, append(head.Bytes(), answer...))
			}
		}
	}
}

// exec runs a statement that is itself a canary.
func (a *aviary) exec(query string, args ...any) {
	a.t.Helper()
	testkit.Exec(a.t, a.table.DB, "/* "+statement+" */ "+query, args...)
}

// rows writes good rows, every kind of invalid ones, and rows that the reader must defer.
func (a *aviary) rows(round int) {
	a.t.Helper()
	const insert = "INSERT INTO t_local_message (biz_type, biz_key, topic, headers, message_body) VALUES "
	for i, row := range []struct{ topic, headers, body string }{
		{"orders", `{"h":"` + header + `"}`, body},
		{"orders", `["` + header + `"]`, body}, // no object
		{"missing", `{"h":"` + header + `"}`, body},
		{"not a topic", `{"h":"` + header + `"}`, body},
		{"orders", `{"":"` + header + `"}`, body},
		{"orders", `{"broken\u0001":"\u0001` + header + `"}`, body},
		{"orders", `{"h":"` + strings.Repeat(header, 5000) + `"}`, body},
		{"orders", `{"h":"` + header + `"}`, strings.Repeat(body, 10_000)}, // more than max_message_bytes
	} {
		a.exec(insert+"('order', ?, ?, ?, ?)", fmt.Sprintf("%d-%d", round, i), row.topic, row.headers, row.body)
	}
	a.exec("INSERT INTO customer VALUES (?, ?)", round, foreign)
	a.exec("UPDATE customer SET note = CONCAT(note, ?)", foreign)
	a.session(
		"BEGIN", fmt.Sprintf(insert+"('order', '%d-rewritten', 'orders', NULL, '%s')", round, body),
		fmt.Sprintf("UPDATE t_local_message SET message_body = '%s' WHERE biz_key = '%d-rewritten'", body, round), "COMMIT",
		"XA START '"+statement+"'", fmt.Sprintf(insert+"('order', '%d-xa', 'orders', NULL, '%s')", round, body),
		"XA END '"+statement+"'", "XA PREPARE '"+statement+"'", "XA COMMIT '"+statement+"'",
		"SET SESSION binlog_format = 'STATEMENT'", fmt.Sprintf(insert+"('order', '%d-statement', 'orders', NULL, '%s')", round, body),
		fmt.Sprintf("CREATE USER 'u%d'@'%%' IDENTIFIED BY '%s'", round, accountPassword),
		fmt.Sprintf("ALTER TABLE t_local_message COMMENT '%s %d'", statement, round),
		fmt.Sprintf(insert+"('order', '%d-last', 'orders', NULL, '%s')", round, body),
	)
	testkit.WaitFor(a.t, patience, "the last row to be SENT", func() bool {
		return a.table.Count(a.t, fmt.Sprintf("status = 2 AND biz_key = '%d-last'", round)) == 1
	})
	testkit.WaitFor(a.t, patience, "the row that is too large to be FAILED", func() bool {
		return a.table.Count(a.t, fmt.Sprintf("status = 3 AND biz_key = '%d-7'", round)) == 1
	})
}

// session runs statements on one connection, as root.
func (a *aviary) session(statements ...string) {
	a.t.Helper()
	conn, err := a.table.DB.Conn(a.t.Context())
	testkit.Must(a.t, err)
	defer conn.Close()
	for _, s := range statements {
		if _, err := conn.ExecContext(a.t.Context(), s); err != nil {
			a.t.Fatalf("%s: %v", s, err)
		}
	}
}

// cut kills all connections of the relay on the server.
func (a *aviary) cut() {
	a.t.Helper()
	killed, err := a.db.KillSessions(a.t.Context(), "USER = 'relay'")
	testkit.Must(a.t, err)
	if killed == 0 {
		a.t.Fatal("the relay has no connection")
	}
}

// check searches canaries in everything printed, in the relay's own directory, and in the reasons that it wrote into the table.
func (a *aviary) check() {
	a.t.Helper()
	a.keep("standard output and error", []byte(a.printed()))
	err := filepath.WalkDir(a.StateDir(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		a.keep("state directory, "+entry.Name(), data)
		return err
	})
	testkit.Must(a.t, err)
	rows, err := a.table.DB.QueryContext(a.t.Context(), "SELECT fail_reason FROM t_local_message WHERE fail_reason IS NOT NULL")
	testkit.Must(a.t, err)
	defer rows.Close()
	reasons := 0
	for ; rows.Next(); reasons++ {
		var reason sql.NullString
		testkit.Must(a.t, rows.Scan(&reason))
		a.keep("fail_reason", []byte(reason.String))
	}
	testkit.Must(a.t, rows.Err())
	if reasons == 0 {
		a.t.Error("no row was refused")
	}
	for where, what := range a.shown {
		for _, name := range found(what) {
			a.t.Errorf("%s shows %s", where, name)
		}
	}
}

// fly is the whole run: refused credentials, invalid rows, cut connections, a kill, a stop, a dump of all goroutines.
func (a *aviary) fly() {
	a.t.Helper()
	a.configure(a.yaml(wrongPassword, brokerPassword, "json"))
	a.commands("wrong database password")
	a.Launch(a.t)
	if code := a.wait(); code != 1 {
		a.t.Errorf("a wrong password: exit code %d", code)
	}
	a.configure(a.yaml(databasePassword, brokerPassword, "json"))
	a.commands("not running")
	a.Start(a.t)
	a.rows(1)
	a.commands("running")
	a.ask("running")
	a.cut()
	a.rows(2)
	a.Kill()
	a.configure(a.yaml(databasePassword, brokerPassword, "text"))
	a.Start(a.t)
	a.rows(3)
	a.cut()
	a.ask("after a kill")
	if code := a.stop(syscall.SIGTERM); code != 0 {
		a.t.Errorf("exit code %d", code)
	}
	a.Start(a.t)
	a.rows(4)
	a.stop(syscall.SIGQUIT) // the runtime prints every goroutine, as after a panic
	a.says("goroutine ")
	a.check()
}

// refused runs with a wrong password for the broker.
func (a *aviary) refused() {
	a.t.Helper()
	a.configure(a.yaml(databasePassword, wrongPassword, "json"))
	a.commands("wrong broker password")
	a.Start(a.t)
	a.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'x', 'orders', ?)", body)
	a.says("no retry counted")
	a.commands("wrong broker password, running")
	a.ask("wrong broker password")
	a.Kill()
}

// A53: no secret and no content of an application is in the log, in an answer, in the metrics, in the output of commands, in the
// state directory or in the reasons of failed rows.
func TestA53_NoSecretsAnywhereKafka(t *testing.T) {
	t.Parallel()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", brokerPassword))
	testkit.Must(t, err)
	t.Cleanup(fake.Close)
	a := newAviary(t, testkit.MySQL, func(secret string) string {
		return fmt.Sprintf("kafka: {brokers: [%q], max_message_bytes: 50000, sasl: {mechanism: plain, user: relay, password: %q}}", fake.ListenAddrs()[0], secret)
	})
	a.refused()
	a.fly()
}

// A53, B16: the same on MariaDB and with the RocketMQ client, whose library writes its own log lines.
func TestA53_B16_NoSecretsAnywhereRocketMQ(t *testing.T) {
	relay.Long(t)
	t.Parallel()
	q := testkit.SharedRocketMQ(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	testkit.Must(t, q.CreateTopic(ctx, "orders", 1))
	newAviary(t, testkit.MariaDB, func(secret string) string {
		return fmt.Sprintf("rocketmq: {name_servers: [%q], max_message_bytes: 50000, access_key: relay, secret_key: %q}", q.NameServer(), secret)
	}).fly()
}
