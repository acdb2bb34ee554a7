package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/inbox"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bed is the inbox of a consumer and a table that its handler writes.
type bed struct {
	*testing.T
	server *testkit.Database
	db     *sql.DB
	schema string
	box    *inbox.Inbox
}

// onBoth runs a test on each server with a schema of its own.
func onBoth(t *testing.T, test func(b *bed)) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			server := testkit.SharedDatabase(t, flavor)
			b := &bed{T: t, server: server, schema: server.CreateSchema(t)}
			b.db = server.Connect(t, b.schema)
			ddl, err := migrations.DDL("inbox_message", "inbox_message")
			testkit.Must(t, err)
			testkit.Exec(t, b.db, ddl)
			testkit.Exec(t, b.db, "CREATE TABLE handled (message_id VARCHAR(600))")
			b.box = b.inbox("billing")
			test(b)
		})
	}
}

func (b *bed) inbox(consumer string) *inbox.Inbox {
	b.Helper()
	box, err := inbox.New(consumer, b.schema+".inbox_message")
	testkit.Must(b, err)
	return box
}

// handled is how often the effect of a message was committed.
func (b *bed) handled(messageID string) (n int) {
	b.Helper()
	testkit.Must(b, b.db.QueryRow("SELECT COUNT(*) FROM handled WHERE BINARY message_id = ?", messageID).Scan(&n))
	return n
}

// once handles a message in a transaction, which it ends as said.
func (b *bed) once(box *inbox.Inbox, messageID string, result error, commit bool) (ran bool, err error) {
	tx, err := b.db.Begin()
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	ran, err = box.Once(b.Context(), tx, messageID, func(ctx context.Context) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO handled VALUES (?)", messageID); err != nil {
			return err
		}
		return result
	})
	if commit {
		err = errors.Join(err, tx.Commit())
	}
	return ran, err
}

func (b *bed) want(wantRan bool, ran bool, err error) {
	b.Helper()
	if ran != wantRan || err != nil {
		b.Errorf("it ran: %v, want %v; %v", ran, wantRan, err)
	}
}

func TestACopyIsNotHandledAgain(t *testing.T) {
	onBoth(t, func(b *bed) {
		ran, err := b.once(b.box, "order:1", nil, true)
		b.want(true, ran, err)
		ran, err = b.once(b.box, "order:1", nil, true)
		b.want(false, ran, err)
		ran, err = b.once(b.inbox("mail"), "order:1", nil, true)
		b.want(true, ran, err)
		if n := b.handled("order:1"); n != 2 {
			b.Errorf("two consumers handled it %d times", n)
		}
		for _, other := range []string{"ORDER:1", "order:1 ", "örder:1", strings.Repeat("x", 512)} {
			ran, err = b.once(b.box, other, nil, true)
			b.want(true, ran, err)
		}
		for _, bad := range []string{"", strings.Repeat("x", 513)} {
			if ran, err = b.once(b.box, bad, nil, true); ran || err == nil {
				b.Errorf("a message id of %d bytes: it ran: %v, %v", len(bad), ran, err)
			}
		}
	})
}

// The client may ask the server to count the rows that were found and not those that were changed.
func TestACopyIsSeenWithFoundRowsToo(t *testing.T) {
	onBoth(t, func(b *bed) {
		_, err := b.once(b.box, "a", nil, true)
		testkit.Must(b, err)
		var address string
		testkit.Must(b, b.db.QueryRow("SELECT CONCAT('127.0.0.1:', @@port)").Scan(&address))
		found, err := sql.Open("mysql", "root@tcp("+address+")/"+b.schema+"?clientFoundRows=true")
		testkit.Must(b, err)
		defer found.Close()
		ran, err := b.box.Once(b.Context(), found, "a", func(context.Context) error { return nil })
		b.want(false, ran, err)
	})
}

func TestAnErrorLeavesNothing(t *testing.T) {
	refused := errors.New("no such order")
	onBoth(t, func(b *bed) {
		for _, commit := range []bool{false, true} {
			if ran, err := b.once(b.box, "a", refused, commit); !ran || !errors.Is(err, refused) {
				b.Errorf("it ran: %v, %v", ran, err)
			}
			var rows int
			testkit.Must(b, b.db.QueryRow("SELECT COUNT(*) FROM inbox_message").Scan(&rows))
			if rows != 0 {
				b.Errorf("with commit %v it counts as handled", commit)
			}
		}
		// The context ends while the handler works: so has the transaction.
		ctx, cancel := context.WithCancel(b.Context())
		tx, err := b.db.BeginTx(ctx, nil)
		testkit.Must(b, err)
		_, err = b.box.Once(ctx, tx, "a", func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			b.Errorf("%v", err)
		}
		_ = tx.Rollback()
		ran, err := b.once(b.box, "a", nil, true)
		b.want(true, ran, err)
	})
}

// Copies that come at the same time wait for the first: after its commit none is handled, after its rollback one is.
func TestCopiesAtTheSameTime(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commit), func(t *testing.T) {
			onBoth(t, func(b *bed) {
				first, err := b.db.Begin()
				testkit.Must(b, err)
				defer first.Rollback()
				_, err = b.box.Once(b.Context(), first, "a", func(ctx context.Context) error {
					_, err := first.ExecContext(ctx, "INSERT INTO handled VALUES ('a')")
					return err
				})
				testkit.Must(b, err)
				const copies = 6
				done := make(chan error, copies)
				for range copies {
					go func() {
						var refusal *mysql.MySQLError
						for { // as the broker would deliver it again
							_, err := b.once(b.box, "a", nil, true)
							if !commit && errors.As(err, &refusal) && refusal.Number == 1213 { // deadlock
								continue
							}
							done <- err
							return
						}
					}()
				}
				testkit.WaitFor(b, time.Minute, "the copies to wait", func() bool {
					var n int
					testkit.Must(b, b.db.QueryRow("SELECT COUNT(*) FROM "+b.server.Processlist()+" WHERE COMMAND = 'Execute' AND DB = ? AND ID <> CONNECTION_ID()",
						b.schema).Scan(&n)) // MySQL 8.0 does not show the text of a prepared statement
					return n == copies
				})
				if commit {
					testkit.Must(b, first.Commit())
				} else {
					testkit.Must(b, first.Rollback())
				}
				for range copies {
					testkit.Must(b, <-done)
				}
				if n := b.handled("a"); n != 1 {
					b.Errorf("it was handled %d times", n)
				}
			})
		})
	}
}

// Old rows go, in statements of a few hundred, whatever the zone of the connection is; younger ones and other consumers' stay.
func TestRemoveOlder(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.db.SetMaxOpenConns(1)
		testkit.Exec(b, b.db, "SET time_zone = '+08:00'")
		thirty := "SELECT 0 AS i" // MySQL 5.7 has no recursive queries
		for i := range 29 {
			thirty += fmt.Sprint(" UNION ALL SELECT ", i+1)
		}
		testkit.Exec(b, b.db, `INSERT INTO inbox_message (consumer, message_id, created_at)
			SELECT 'billing', a.i * 30 + b.i, UTC_TIMESTAMP(3) - INTERVAL 2 HOUR FROM (`+thirty+`) AS a, (`+thirty+`) AS b UNION ALL SELECT 'mail', 1, UTC_TIMESTAMP(3) - INTERVAL 2 HOUR`)
		ran, err := b.once(b.box, "young", nil, true)
		b.want(true, ran, err)
		var before, after int
		var name string
		testkit.Must(b, b.db.QueryRow("SHOW SESSION STATUS LIKE 'Com_delete'").Scan(&name, &before))
		removed, err := b.box.RemoveOlder(b.Context(), b.db, time.Hour)
		if err != nil || removed != 900 {
			b.Errorf("%d rows were removed, %v", removed, err)
		}
		testkit.Must(b, b.db.QueryRow("SHOW SESSION STATUS LIKE 'Com_delete'").Scan(&name, &after))
		if after-before != 2 {
			b.Errorf("%d statements for 900 rows", after-before)
		}
		var rows int
		testkit.Must(b, b.db.QueryRow("SELECT COUNT(*) FROM inbox_message").Scan(&rows))
		if rows != 2 {
			b.Errorf("%d rows are left", rows)
		}
		if _, err := b.box.RemoveOlder(b.Context(), b.db, 0); err == nil {
			b.Error("an age of 0")
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ consumer, table, want string }{
		{"", "", "consumer"},
		{strings.Repeat("a", 65), "", "1 to 64"},
		{"a", "shop.", "no name of a table"},
	} {
		if _, err := inbox.New(c.consumer, c.table); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
