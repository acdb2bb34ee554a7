package sim

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	tables "github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// real is outbox/table on a server, whose clock is set for each move.
type real struct {
	*tables.Store
	db   *sql.DB // one connection: the session's clock is set on it
	name string
}

// named gives answers and questions the table's name of the model.
func (r real) States(ctx context.Context, ids []outbox.Identity) ([]outbox.Candidate, error) {
	return r.Store.States(ctx, r.ours(ids))
}

func (r real) Untouched(ctx context.Context, ids []outbox.Identity) (bool, error) {
	return r.Store.Untouched(ctx, r.ours(ids))
}

func (r real) ReadBack(ctx context.Context, token string, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
	return r.Store.ReadBack(ctx, token, r.ours(ids))
}

func (r real) Due(ctx context.Context, _ string, after table.Cursor, q table.DueQuery) ([]outbox.Candidate, table.Cursor, error) {
	return r.Store.Due(ctx, r.name, after, q)
}

func (r real) Upcoming(ctx context.Context, _ string, from, to time.Duration, limit int) ([]outbox.Candidate, error) {
	return r.Store.Upcoming(ctx, r.name, from, to, limit)
}

func (r real) Claim(ctx context.Context, candidates []outbox.Candidate) (string, error) {
	list := slices.Clone(candidates)
	for i := range list {
		list[i].Table = r.name
	}
	return r.Store.Claim(ctx, list)
}

func (r real) Apply(ctx context.Context, batch []outbox.Completion) ([]outbox.WriteError, error) {
	list := slices.Clone(batch)
	for i := range list {
		list[i].Table = r.name
	}
	return r.Store.Apply(ctx, list)
}

func (r real) Final(ctx context.Context, _ string, after table.Cursor, q table.FinalQuery) ([]outbox.Candidate, table.Cursor, error) {
	return r.Store.Final(ctx, r.name, after, q)
}

func (r real) RetryFailed(ctx context.Context, ids []outbox.Identity) (int64, error) {
	return r.Store.RetryFailed(ctx, r.ours(ids))
}

func (r real) ReadSent(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, error) {
	return r.Store.ReadSent(ctx, r.ours(ids))
}

func (r real) MarkDone(ctx context.Context, ids []outbox.Identity) (int64, error) {
	return r.Store.MarkDone(ctx, r.ours(ids))
}

func (r real) Expired(ctx context.Context, _, after string, of []table.Expiry) (table.ExpiredPage, error) {
	return r.Store.Expired(ctx, r.name, after, of)
}

func (r real) Expire(ctx context.Context, _ string, e table.Expiry, ids []string) (table.Left, error) {
	return r.Store.Expire(ctx, r.name, e, ids)
}

func (r real) ours(ids []outbox.Identity) []outbox.Identity {
	list := slices.Clone(ids)
	for i := range list {
		list[i].Table = r.name
	}
	return list
}

func newReal(t *testing.T, flavor testkit.Flavor, grace time.Duration) real {
	t.Helper()
	d := testkit.SharedDatabase(t, flavor)
	schema := d.CreateSchema(t)
	pool := d.Connect(t, schema)
	ddl, err := migrations.DDL("outbox", "outbox")
	testkit.Must(t, err)
	testkit.Exec(t, pool, ddl)
	testkit.Exec(t, pool, "CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW BEGIN IF OLD.biz_type = 'unwritable' AND NEW.status = 2 THEN "+
		"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a trigger'; END IF; END")
	mapping, err := table.Preset("outbox")
	testkit.Must(t, err)
	mapping.Schema, mapping.Name, mapping.Ordered, mapping.Grace = schema, "outbox", true, grace
	mapping.States, mapping.Redeliver = map[string]string{"consumed": "9"}, table.Redeliver{After: time.Hour, Until: "consumed", Max: 3}
	bound, findings, err := table.Load(t.Context(), pool, mapping)
	testkit.Must(t, err)
	if bound == nil {
		t.Fatalf("findings %+v", findings)
	}
	db, err := server.Open(server.Config{Address: d.Addr(), User: "root"}, nil, server.Session{Writes: true, MaxConns: 1})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, db.Close()) })
	testkit.Exec(t, db, "USE "+schema)
	return real{Store: tables.New(db, []*table.Table{bound}, nil, nil), db: db, name: schema + ".outbox"}
}

// shows is the table of the server.
func (r real) shows(t *testing.T, at time.Time) string {
	t.Helper()
	found, err := r.db.QueryContext(t.Context(), "SELECT id, CONCAT(biz_type, ':', biz_key), status, retry_count, "+
		"TIMESTAMPDIFF(MICROSECOND, NOW(3), next_retry_time), COALESCE(CAST(last_exec_time AS CHAR), '') FROM outbox")
	testkit.Must(t, err)
	defer found.Close()
	var lines []string
	for found.Next() {
		var id, message, token string
		var number, retries int
		var micros sql.NullInt64
		testkit.Must(t, found.Scan(&id, &message, &number, &retries, &micros, &token))
		due := time.Time{}
		if micros.Valid {
			due = at.Add(time.Duration(micros.Int64) * time.Microsecond)
		}
		status := outbox.Held
		for _, s := range []outbox.Status{outbox.Pending, outbox.Sending, outbox.Sent, outbox.Failed} {
			if code(s) == number {
				status = s
			}
		}
		lines = append(lines, shownRow(id, message, status, retries, due, token, at))
	}
	testkit.Must(t, found.Err())
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// play runs the moves on the server and compares.
func (r real) play(t *testing.T, all []move) {
	t.Helper()
	for n, m := range all {
		testkit.Exec(t, r.db, fmt.Sprintf("SET SESSION timestamp = %d.%06d, time_zone = '+00:00'", m.at.Unix(), m.at.Nanosecond()/1000))
		for _, statement := range m.sql {
			testkit.Exec(t, r.db, statement)
		}
		answer := ""
		if m.byUs != nil {
			var err error
			if answer, err = m.byUs(t.Context(), r); err != nil {
				t.Fatalf("move %d, %s: %v", n, m.what, err)
			}
		}
		if answer != m.want {
			t.Fatalf("move %d, %s: the server answers\n%s\nthe model\n%s\nof the rows\n%s", n, m.what, answer, m.want, all[max(0, n-1)].rows)
		}
		if got := r.shows(t, m.at); got != m.rows {
			t.Fatalf("move %d, %s: the server shows\n%s\nthe model\n%s\nbefore\n%s", n, m.what, got, m.rows, all[max(0, n-1)].rows)
		}
	}
}
