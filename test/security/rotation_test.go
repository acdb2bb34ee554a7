package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// rotation is a relay under load while a secret of its changes. The process is started once.
type rotation struct {
	*child
	t      *testing.T
	db     *testkit.Database
	load   *relay.Load
	user   string
	secret string // path of the file
	pid    int
	stop   func() // ends the load and waits for its end
}

// newRotation makes a table with a lease, and an account whose password is in a file.
func newRotation(t *testing.T, db *testkit.Database, first string) *rotation {
	t.Helper()
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	lease, err := migrations.DDL("lease", schema+".canal_outbox_lease")
	testkit.Must(t, err)
	testkit.Exec(t, table.DB, lease)
	r := &rotation{
		t: t, db: db, user: fmt.Sprint("rotates", tests.Add(1)), secret: filepath.Join(t.TempDir(), "password"), load: relay.NewLoad(t, table, false, "orders"),
	}
	grants := append(grants(db.Flavor, schema), "SELECT, INSERT, UPDATE, DELETE ON "+schema+".canal_outbox_lease")
	testkit.Must(t, db.CreateUser(t.Context(), r.user, first, grants...))
	t.Cleanup(func() { testkit.Exec(t, db.Root(), "DROP USER '"+r.user+"'@'%'") })
	return r
}

// starts begins the load and the relay.
func (r *rotation) starts(source, sink string) {
	r.t.Helper()
	r.child = newChild(r.t, fmt.Sprintf("source: {address: %q, %s}\ntables: [{name: %s, preset: t_local_message}]\nsink: {%s}\nlease: {time: 2s}\nfallback: {interval: 1s}",
		r.db.Addr(), source, r.load.Table.FullName(), sink))
	r.Start(r.t)
	r.pid = r.PID()
	r.stop = r.load.StartPaced(r.t, 2, time.Millisecond)
}

func (r *rotation) write(content string) {
	r.t.Helper()
	testkit.Must(r.t, os.WriteFile(r.secret, []byte(content), 0o600))
}

// alter changes the account.
func (r *rotation) alter(how string) {
	r.t.Helper()
	testkit.Exec(r.t, r.db.Root(), "ALTER USER '"+r.user+"'@'%' "+how)
}

// cut ends all sessions of the relay, so that each of its connections logs in again: the reader's, the flow's, and the lease's.
func (r *rotation) cut() {
	r.t.Helper()
	_, err := r.db.KillSessions(r.t.Context(), "USER = '"+r.user+"'")
	testkit.Must(r.t, err)
}

// flows waits until what is committed from now on is SENT, and nothing is refused.
func (r *rotation) flows(when string) {
	r.t.Helper()
	from := r.load.Ledger.Len()
	testkit.WaitFor(r.t, patience, "messages to be sent "+when, func() bool { return r.load.Table.Count(r.t, r.load.Table.Sent()) > from+20 })
	testkit.WaitFor(r.t, patience, "nothing to be refused "+when, func() bool { return !r.problem("refused") })
}

// problem reports whether status has a problem that says all the parts.
func (r *rotation) problem(parts ...string) bool {
	status, err := r.Status()
	if err != nil {
		return false
	}
next:
	for _, p := range status.Problems {
		for _, part := range parts {
			if !strings.Contains(p, part) {
				continue next
			}
		}
		return true
	}
	return false
}

func (r *rotation) awaitProblem(parts ...string) {
	r.t.Helper()
	testkit.WaitFor(r.t, patience, fmt.Sprintf("a problem that says %q", parts), func() bool { return r.problem(parts...) })
}

// balance ends the load and compares: nothing is lost or invented, no row lost an attempt, and the process is the first one. No secret is in its log.
func (r *rotation) balance(read func() ([]relay.Record, error), secrets ...string) {
	r.t.Helper()
	r.stop()
	rows := r.load.Ledger.Len()
	testkit.WaitFor(r.t, patience, "all rows to be SENT", func() bool { return r.load.Table.Count(r.t, r.load.Table.Sent()) == rows })
	if n := r.load.Table.Count(r.t, "retry_count > 0"); n > 0 {
		r.t.Errorf("%d rows have lost an attempt", n)
	}
	records, err := read()
	testkit.Must(r.t, err)
	account := r.load.Ledger.Compare(records)
	account.Disorder = nil // what a sweep publishes has the order of the index
	account.Check(r.t)
	r.t.Logf("%d rows, %d copies", rows, account.Duplicates())
	if r.PID() != r.pid || !r.Running() {
		r.t.Error("the process was started again")
	}
	for _, secret := range secrets {
		if strings.Contains(r.printed(), secret) {
			r.t.Errorf("the log shows %q", secret)
		}
	}
}

// The password of the database changes twice under load: first with both valid for a while (MySQL), then at once, with a file that is empty
// for a while. Every connection logs in again each time. The relay continues without a restart.
func TestThePasswordOfTheDatabaseRotates(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			const first, second, third = "the-first-password", "the-second-password", "the-third-password"
			r := newRotation(t, testkit.SharedDatabase(t, flavor), first)
			broker := fakekafka.New(t, 1, map[string]int{"orders": 1})
			r.write(first + "\n")
			r.starts(fmt.Sprintf("user: %s, password_file: %q", r.user, r.secret), broker.Sink())
			r.flows("at the start")
			last := first
			if flavor == testkit.MySQL && !r.db.Before(8, 0) {
				r.alter("IDENTIFIED BY '" + second + "' RETAIN CURRENT PASSWORD")
				r.cut()
				r.flows("with the old password while both are valid")
				r.write(second + "\n")
				r.alter("DISCARD OLD PASSWORD")
				r.cut()
				r.flows("with the second password")
				last = second
			}
			r.alter("IDENTIFIED BY '" + third + "'")
			r.cut()
			refused := []string{"source.password_file (" + r.secret + ") is refused by " + r.db.Addr() + " since ", "Access denied"}
			r.awaitProblem(refused...)
			r.write("")
			r.awaitProblem("source.password_file ("+r.secret+") is empty since ", "what was in it before is still used")
			r.awaitProblem(refused...)
			r.write(third) // without a line break
			r.flows("with the third password")
			r.balance(func() ([]relay.Record, error) { return broker.Read(t.Context(), "orders") }, first, last, third)
		})
	}
}
