package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// filled is how many rows are copied at a time.
const filled = 500_000

// BenchmarkSweepPass reads the whole list of waiting rows, page by page, like a sweep that finds nothing to publish: of 5 million
// rows (SWEEP_ROWS) every sixteenth waits, spread over the table. A third of these were refused before. For comparison, it
// measures a sweep when nothing waits. Each index is created on the same table and dropped again.
func BenchmarkSweepPass(b *testing.B) {
	rows := 5_000_000
	if n, err := strconv.Atoi(os.Getenv("SWEEP_ROWS")); err == nil {
		rows = n
	}
	onEach(b, func(b *testing.B, flavor testkit.Flavor) {
		d := testkit.NewDatabase(b, testkit.DatabaseOptions{Flavor: flavor, Args: []string{"--innodb-buffer-pool-size=1G"}})
		schema := d.CreateSchema(b)
		db := d.Connect(b, schema)
		db.SetMaxOpenConns(1) // one session, for its settings
		fillWaiting(b, db, rows)
		writer := writerTo(b, d)
		for _, index := range []string{
			"status, next_retry_time", "status, retry_count, next_retry_time", "status, created_at", "status", "",
		} {
			if index != "" {
				testkit.Exec(b, db, "ALTER TABLE waiting ADD INDEX by_bench ("+index+")")
				testkit.Exec(b, db, "ANALYZE TABLE waiting")
			}
			b.Run("("+index+")", func(b *testing.B) {
				b.Run("waiting", func(b *testing.B) { pass(b, writer, schema, "0", rows/16) })
				b.Run("idle", func(b *testing.B) { pass(b, writer, schema, "7", 0) })
			})
			if index != "" {
				testkit.Exec(b, db, "ALTER TABLE waiting DROP INDEX by_bench")
			}
		}
	})
}

func fillWaiting(b *testing.B, db *sql.DB, rows int) {
	b.Helper()
	for _, statement := range []string{
		"SET SESSION sql_log_bin = 0",
		"CREATE TABLE waiting (id BIGINT PRIMARY KEY AUTO_INCREMENT, message_id VARCHAR(64) NOT NULL, topic VARCHAR(64) NOT NULL, " +
			"message_body TEXT NOT NULL, status TINYINT NOT NULL, retry_count INT NOT NULL, next_retry_time DATETIME NULL, " +
			"last_exec_time DATETIME(3) NULL, created_at DATETIME NOT NULL)",
		"INSERT INTO waiting VALUES (1, 'm1', 'orders', REPEAT('x', 200), 2, 0, NULL, NULL, NOW() - INTERVAL 1 YEAR)",
	} {
		testkit.Exec(b, db, statement)
	}
	for have := 1; have < rows; {
		n := min(have, filled, rows-have)
		testkit.Exec(b, db, fmt.Sprintf("INSERT INTO waiting SELECT id + %[1]d, CONCAT('m', id + %[1]d), topic, message_body, "+
			"IF((id + %[1]d) %% 16, 2, 0), IF((id + %[1]d) %% 48, 0, 1 + (id + %[1]d) DIV 48 %% 5), "+
			"IF((id + %[1]d) %% 48, NULL, NOW() - INTERVAL (id + %[1]d) DIV 48 %% 90000 + 60 SECOND), NULL, "+
			"NOW() - INTERVAL 1 YEAR + INTERVAL id + %[1]d SECOND FROM waiting WHERE id <= %[2]d", have, n))
		have += n
	}
}

// pass reads the list once per run; pending is the code of the waiting rows.
func pass(b *testing.B, db *sql.DB, schema, pending string, want int) {
	ctx := context.Background()
	t, findings, err := table.Load(ctx, db, table.Mapping{
		Schema: schema, Name: "waiting",
		Columns: map[table.Column]string{
			table.ID: "id", table.MessageID: "message_id", table.Topic: "topic", table.Body: "message_body", table.StatusCode: "status",
			table.RetryCount: "retry_count", table.NextRetryTime: "next_retry_time", table.LastExecTime: "last_exec_time", table.CreatedAt: "created_at",
		},
		Codes: map[outbox.Status]string{outbox.Pending: pending, outbox.Sending: "1", outbox.Sent: "2", outbox.Failed: "3"},
	})
	testkit.Must(b, err)
	if t == nil {
		b.Fatal(findings)
	}
	store := store.New(db, []*table.Table{t}, nil, nil)
	query := table.DueQuery{Threshold: time.Minute, Horizon: time.Minute, ExpiredClaims: time.Minute}
	for b.Loop() {
		n := 0
		for at := (table.Cursor{}); !at.Done(); {
			page, next, err := store.Due(ctx, t.Name(), at, query)
			testkit.Must(b, err)
			n, at = n+len(page), next
		}
		if n != want {
			b.Fatalf("%d rows, want %d", n, want)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/pass")
}
