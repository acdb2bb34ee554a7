package e2e

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// writes commits rows and waits until they are SENT.
func (r *reader) writes(rows int) {
	r.t.Helper()
	r.load.Run(r.t, rows, 1)
	r.published()
}

func (r *reader) published() {
	r.t.Helper()
	r.wait("all rows to be SENT", func() bool { return r.table.Count(r.t, r.table.Sent()) == r.load.Ledger.Len() })
}

// copies checks that nothing is lost or invented, and returns how many copies there are.
func (r *reader) copies() int {
	r.t.Helper()
	r.published()
	account := r.load.Ledger.Compare(relay.ReadAll(r.t, r.broker, r.load.Ledger.Topics()...))
	account.Disorder = nil // what a sweep publishes has the order of the index
	account.Check(r.t)
	return account.Duplicates()
}

func (r *reader) noCopies() {
	r.t.Helper()
	if n := r.copies(); n != 0 {
		r.t.Errorf("%d copies", n)
	}
}

func (r *reader) gapsAre(want ...outbox.GapCause) {
	r.t.Helper()
	gaps, err := r.Client().Gaps(r.t.Context())
	testkit.Must(r.t, err)
	var got []outbox.GapCause
	for _, gap := range gaps {
		if gap.Cause != outbox.GapFirstStart {
			got = append(got, gap.Cause)
		}
	}
	if len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
		r.t.Errorf("gaps %v, want %v", got, want)
	}
}

// runbooks are the pages of docs/runbooks and what the world is like for who reads them.
var runbooks = map[string]func(t *testing.T, page string){
	"reset-checkpoint":    resetCheckpoint,
	"fail-over-database":  failOverDatabase,
	"drain-backlog":       drainBacklog,
	"move-machine":        moveMachine,
	"upgrade":             upgrade,
	"back-up-and-restore": backUpAndRestore,
	"rotate-credentials":  rotateCredentials,
	"take-over":           takeOver,
}

// Every command and statement of every runbook is run, in the order of the page, against real relays: it does what the page says.
func TestRunbooks(t *testing.T) {
	pages, err := filepath.Glob("../../docs/runbooks/*.md")
	testkit.Must(t, err)
	for _, path := range pages {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		if name == "README" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if runbooks[name] == nil {
				t.Fatal("no test runs its commands")
			}
			runbooks[name](t, "runbooks/"+name+".md")
		})
	}
	if len(pages) != len(runbooks)+1 {
		t.Errorf("%d pages for %d runbooks", len(pages), len(runbooks))
	}
}

// nextSecond returns the time of the database when a new second has begun.
func (r *reader) nextSecond() (now string) {
	r.t.Helper()
	var first string
	r.wait("the next second", func() bool {
		testkit.Must(r.t, r.sql.QueryRow("SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%d %H:%i:%s')").Scan(&now))
		first = cmp.Or(first, now)
		return now != first
	})
	return now
}

func resetCheckpoint(t *testing.T, page string) {
	// A server of its own: the preview reads the log from its beginning, and a shared one is long.
	r := newReaderOn(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB}), relay.Options{})
	r.Start(t)
	r.writes(20)
	at := relay.LogEnd(r.t, r.sql)
	r.values["binlog.000042 --pos 157"] = fmt.Sprintf("%s --pos %d", at.File, at.Offset)
	r.values["3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77"] = at.GTIDs
	now := r.nextSecond() // the log begins before it
	r.values["2026-01-02 15:04:05 Asia/Shanghai"] = now + " UTC"
	r.nextSecond() // the rows that follow are behind that time
	r.writes(20)
	end := relay.LogEnd(r.t, r.sql)
	r.hooks["Return"] = func() {
		r.noCopies()
		history, err := r.Client().History(t.Context(), 100)
		testkit.Must(t, err)
		last := slices.MaxFunc(history, func(a, b operator.HistoryEntry) int { return a.Position.Compare(b.Position) })
		r.values["rollback 17"] = "rollback " + strconv.FormatUint(last.Number, 10)
	}
	r.hooks["Publish a part again"] = func() {
		r.noCopies()
		r.wait("the checkpoint to be where it was", func() bool {
			c, err := r.Client().Checkpoint(t.Context())
			return err == nil && c.Position.Compare(end) >= 0
		})
	}
	r.reads(page)
	r.wait("copies", func() bool { return r.copies() >= 20 })
	r.Stop(t)
}

func failOverDatabase(t *testing.T, page string) {
	start := func() *testkit.Database {
		return testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	}
	primary, replica := start(), start()
	testkit.Must(t, replica.ReplicateFrom(t.Context(), primary))
	proxy := testkit.NewProxy(t, primary.Addr())
	r := newReaderOn(t, primary, relay.Options{Source: proxy.Addr()})
	to := func(db *testkit.Database) {
		testkit.Must(t, proxy.Refuse(false))
		r.db, r.sql = db, db.Connect(t, r.table.Schema)
		r.table.DB = r.sql
		proxy.SetTarget(db.Addr())
	}
	r.Start(t)
	r.writes(20)
	r.hooks["Switch"] = func() {
		testkit.Must(t, proxy.Refuse(true))
		proxy.Cut()
		testkit.Must(t, replica.CatchUp(t.Context(), primary))
		testkit.Must(t, replica.Promote(t.Context()))
		to(replica)
		r.writes(20)
	}
	r.hooks["When the relay refuses the new server"] = func() {
		r.noCopies()
		r.gapsAre()
		r.Stop(t)
		r.exec("FLUSH BINARY LOGS")
		clone := start() // with a copy of the data, and a history of its own
		testkit.Exec(t, clone.Root(), "CREATE DATABASE "+r.table.Schema)
		relay.NewTable(t, clone.Connect(t, r.table.Schema), r.table.Schema, "t_local_message")
		r.load.Ledger = relay.NewLedger()
		to(clone)
		r.exec("CREATE TABLE purchase (id BIGINT AUTO_INCREMENT PRIMARY KEY, amount INT NOT NULL, note TEXT)")
		r.load.Run(t, 20, 1)
		if _, refusal, code := r.Command(t, "run"); code != 3 || !strings.Contains(refusal, "not the one the checkpoint was taken on") {
			t.Errorf("exit %d: %s", code, refusal)
		}
	}
	r.reads(page)
	r.published()
	r.gapsAre(outbox.GapOperator)
	r.Stop(t)
}

func drainBacklog(t *testing.T, page string) {
	r := newReader(t, testkit.MySQL, relay.Options{})
	r.table.Extra = ", codes: {sorted_out: 9}"
	r.Configure(t, relay.Options{Source: r.db.Addr(), Tables: []*relay.Table{r.table}, Sink: r.broker.Sink()})
	r.Start(t)
	r.writes(5)
	r.Stop(t)
	conn, err := r.sql.Conn(t.Context())
	testkit.Must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SET SESSION sql_log_bin = 0") // the log delivers nothing of it
	testkit.Must(t, err)
	for range 10 {
		rows := r.load.Writer("backlog").Rows(20)
		testkit.Must(t, r.table.Insert(t.Context(), conn, rows...))
		r.load.Ledger.Committed(rows...)
	}
	_, err = conn.ExecContext(t.Context(), "INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, created_at) "+
		"VALUES ('old', '1', 'payments', 'x', NOW() - INTERVAL 2 DAY)")
	testkit.Must(t, err)
	_, err = conn.ExecContext(t.Context(), "UPDATE t_local_message SET next_retry_time = NOW() + INTERVAL 1 HOUR WHERE biz_type = 'old'")
	testkit.Must(t, err)
	r.Start(t)
	r.reads(page)
	r.noCopies()
	if n := r.table.Count(t, "status = 9"); n != 1 {
		t.Errorf("%d rows were sorted out, want 1", n)
	}
	r.Stop(t)
}

func moveMachine(t *testing.T, page string) {
	r := newReader(t, testkit.MySQL, relay.Options{})
	r.Start(t)
	r.writes(20)
	r.hooks["Import"] = func() { r.load.Run(t, 20, 1) } // while no relay publishes
	r.reads(page)
	r.Relay = r.machines[1]
	r.noCopies()
	r.gapsAre()
	r.Stop(t)
}

func upgrade(t *testing.T, page string) {
	r := newReader(t, testkit.MySQL, relay.Options{})
	testkit.Must(t, os.WriteFile(filepath.Join(r.dir, "canal-outbox"), fmt.Appendf(nil, program, relay.Binary(t, ""), r.Config()), 0o700))
	r.Start(t)
	r.writes(20)
	r.reads(page)
	r.writes(20)
	r.noCopies()
	r.Stop(t)
}

func backUpAndRestore(t *testing.T, page string) {
	r := newReader(t, testkit.MySQL, relay.Options{})
	r.Start(t)
	r.writes(20)
	r.hooks["Restore"] = func() {
		r.writes(20) // the backup does not know them
		r.Stop(t)
		testkit.Must(t, os.RemoveAll(r.StateDir()))
		r.load.Run(t, 20, 1)
	}
	r.reads(page)
	r.noCopies()
	r.gapsAre()
	r.Stop(t)
}

func rotateCredentials(t *testing.T, page string) {
	db := testkit.SharedMySQL(t)
	if db.Before(8, 0) {
		t.Skip("MySQL 5.7 has one password for an account; test/security changes it")
	}
	dir := t.TempDir()
	user := "rotating"
	testkit.Must(t, db.CreateUser(t.Context(), user, "old-password", "REPLICATION SLAVE, REPLICATION CLIENT, SELECT, UPDATE ON *.*"))
	t.Cleanup(func() { testkit.Exec(t, db.Root(), "DROP USER '"+user+"'@'%'") }) // the server is shared
	password, token := filepath.Join(dir, "mysql-password"), filepath.Join(dir, "admin-token")
	testkit.Must(t, os.WriteFile(password, []byte("old-password\n"), 0o600))
	testkit.Must(t, os.WriteFile(token, []byte("a token of sixteen or more\n"), 0o600))
	r := newReaderOn(t, db, relay.Options{
		User:  "user: " + user + ", password_file: " + password,
		Extra: `admin: {listen: "` + testkit.FreeAddress(t) + `", token_file: ` + token + `}`,
	})
	r.values["'canal_outbox'@'%'"], r.values["/etc/canal-outbox"] = "'"+user+"'@'%'", dir
	r.Start(t)
	pid := r.PID()
	r.writes(20)
	r.hooks["The broker's credentials"] = func() { r.loggedInAgain(user) }
	r.reads(page)
	r.loggedInAgain(user)
	if r.PID() != pid {
		t.Error("the relay was started again")
	}
	r.noCopies()
	r.Stop(t)
}

// loggedInAgain ends the sessions of an account, so that the relay logs in with the password of now, and waits until rows are SENT.
func (r *reader) loggedInAgain(user string) {
	r.t.Helper()
	_, err := r.db.KillSessions(r.t.Context(), "USER = '"+user+"'")
	testkit.Must(r.t, err)
	r.writes(20)
}

func takeOver(t *testing.T, page string) {
	r := newReader(t, testkit.MySQL, relay.Options{Extra: "lease: {time: 3s}"})
	r.table.NewLease(t)
	first, second := r.machines[0], r.machines[1]
	active := func(m *relay.Relay) {
		r.wait("a relay to be active", func() bool {
			s, err := m.Status()
			return err == nil && s.Lease.State == "active"
		})
		r.Relay = m
	}
	dies := func(m *relay.Relay) {
		m.Kill()
		r.load.Run(t, 20, 1)
	}
	first.Start(t)
	active(first)
	r.writes(20)
	r.start(1)
	r.hooks["There is a standby"] = func() { dies(first); active(second) }
	r.hooks["The process is dead, its machine lives"] = func() { r.published(); second.Stop(t); active(first); dies(first) }
	r.hooks["The machine is dead, its disk lives"] = func() {
		active(first)
		r.published()
		testkit.Must(t, os.RemoveAll(second.StateDir()))
		dies(first)
	}
	r.hooks["Everything is gone"] = func() { active(second); r.published() }
	r.reads(page)
	t.Logf("%d copies", r.copies())
	second.Stop(t)
}

// A newcomer follows docs/getting-started.md to a message: every command and statement of the page is run.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	db := testkit.SharedMySQL(t)
	r := newReader(t, testkit.MySQL, relay.Options{})
	port := testkit.FreeAddress(t)
	r.values = map[string]string{
		"/etc/canal-outbox": filepath.Dir(r.Config()), "/var/lib/canal-outbox": r.StateDir(), "/usr/local/bin": r.bin(0),
		"127.0.0.1:3306": db.Addr(), "127.0.0.1:9180": port, "shop": "newcomers_shop", "root --password-file /root/mysql-password": "root --account newcomer",
		"--apply": "--apply --state " + r.StateDir(),
	}
	listen := "CANAL_OUTBOX_ADMIN_LISTEN=" + port
	r.Env = append(r.Env, listen)
	testkit.Must(t, os.MkdirAll(filepath.Join(r.dir, "bin"), 0o700))
	built, err := os.ReadFile(filepath.Join(r.bin(0), "canal-outbox"))
	testkit.Must(t, err)
	built = []byte(strings.Replace(string(built), "\n", "\nexport "+listen+"\n", 1))
	testkit.Must(t, os.WriteFile(filepath.Join(r.dir, "bin", "canal-outbox"), built, 0o700)) // what make build leaves there
	testkit.Must(t, os.RemoveAll(r.Config()))
	r.hooks["3. The account and the configuration"] = func() { r.exec(strings.TrimRight(r.printed, ";\n")) }
	r.hooks["6. Stop it, and nothing is lost"] = func() { r.Stop(t) }
	r.reads("getting-started.md")
	r.Stop(t)
	r.exec("DROP DATABASE newcomers_shop")
	r.exec("DROP USER newcomer")
}

// The commands, statements and requests of the pages for operators, and of the one about the API, do what the pages say.
func TestOperationsAndAPIPages(t *testing.T) {
	t.Parallel()
	listen := testkit.FreeAddress(t)
	r := newReaderOn(t, testkit.SharedMariaDB(t), relay.Options{Extra: "admin: {listen: " + listen + "}"})
	r.values["127.0.0.1:9180"], r.values["/var/lib/canal-outbox"] = listen, r.StateDir()
	r.Start(t)
	r.writes(20)
	failed := func() bool { return r.table.Count(t, "status = 3") == 1 }
	pages, err := fs.Glob(docs.Pages, "operations/*.md")
	testkit.Must(t, err)
	for _, page := range pages {
		text, err := docs.Pages.ReadFile(page)
		testkit.Must(t, err)
		if page != "operations/messages.md" && strings.Contains(string(text), "```") {
			r.reads(page)
		}
	}
	r.hooks["FAILED rows"] = func() {
		r.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'large', 'orders', REPEAT('x', 2000000))")
		r.wait("a FAILED row", failed)
	}
	r.hooks["Find, explain and retry one message"] = func() {
		r.prints("operations/messages.md", "order:large...order:large...1 ")
		r.wait("the row to be FAILED again", failed)
		r.exec("DELETE FROM t_local_message WHERE status = 3")
	}
	r.reads("operations/messages.md")
	r.noCopies()
	r.reads("api.md")
	if s, err := r.Status(); err != nil || s.Paused == nil || s.Paused.Reason != "moving a topic" {
		t.Errorf("after the last request of the API's page: %+v, %v", s.Paused, err)
	}
	r.Stop(t)
}
