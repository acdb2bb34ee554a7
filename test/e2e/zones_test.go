package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The zone of the relay's host is no part of any time (A21): with TIMESTAMP columns, inside compressed transactions and
// outside, through the log and through the sweep, rows carry the time that the database has, and one that is due is due.
func TestA21_TimestampsUnderZonesOfTheHost(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		db := testkit.SharedDatabase(t, flavor)
		for _, zone := range []string{"UTC", "Asia/Shanghai", "America/St_Johns"} {
			t.Run(strings.ReplaceAll(zone, "/", "_"), func(t *testing.T) {
				if _, err := time.LoadLocation(zone); err != nil {
					t.Fatalf("this host does not know the zone: %v", err)
				}
				cluster := fake(t)
				l := newStage(t, db, cluster, "fallback: {interval: 1h, threshold: 1h}")
				l.exec("ALTER TABLE t_local_message MODIFY created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), MODIFY next_retry_time TIMESTAMP(3) NULL")
				l.Env = []string{"TZ=" + zone} // of the relay's process
				l.Start(t)
				settings := map[string]string{"plain": "SET @nothing = 0", "hidden": "SET SESSION sql_log_bin = 0"}
				if flavor == testkit.MySQL && !db.Before(8, 0) {
					settings["compressed"] = "SET SESSION binlog_transaction_compression = ON"
				}
				want := map[string]time.Time{}
				for key, setting := range settings {
					want[key] = time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC).Add(time.Duration(len(want)) * time.Hour)
					l.inSession(setting, "SET time_zone = '+00:00'", fmt.Sprintf("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body, created_at, next_retry_time) "+
						"VALUES ('order', '%s', '%s', 'body', '%s', NOW(3) - INTERVAL 1 SECOND)", key, topics[0], want[key].Format("2006-01-02 15:04:05.000")))
				}
				l.waitCount(len(settings)-1, "status = 2 AND biz_key <> 'hidden'") // those that the log shows; due in another zone, they would wait
				testkit.Must(t, l.Client().Sweep(t.Context()))
				l.waitCount(len(settings), "status = 2")
				records, err := testkit.ReadKafkaTopic(t.Context(), cluster.Addr(), topics[0])
				testkit.Must(t, err)
				for _, r := range records {
					for _, h := range r.Headers {
						if made := want[string(r.Key)].Format(time.RFC3339Nano); h.Key == "created_at" && string(h.Value) != made {
							t.Errorf("%s: created at %s, want %s", r.Key, h.Value, made)
						} else if h.Key == "created_at" {
							delete(want, string(r.Key))
						}
					}
				}
				if len(want) > 0 {
					t.Errorf("no time of %v", want)
				}
				l.stopInTime()
			})
		}
	})
}

// inSession runs statements on one connection, which ends with them.
func (l *stage) inSession(statements ...string) {
	l.t.Helper()
	pool := l.db.Connect(l.t, l.table.Schema)
	pool.SetMaxOpenConns(1)
	for _, statement := range statements {
		testkit.Exec(l.t, pool, statement)
	}
}
