package main

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// Tables for old rows are created and printed with the others, and only when old rows leave.
func TestMigratePrintsWhereRowsMove(t *testing.T) {
	file, _ := configure(t)
	if got := run("", "migrate", "--print", "-c", file); got.code != 0 || strings.Contains(got.out, "_archive") || strings.Contains(got.out, "_failed") {
		t.Errorf("%+v", got)
	}
	if got := run("", "retention", "--dry-run", "-c", file); got.code != exitUsage || !strings.Contains(got.err, "retention is off: set retention.sent") {
		t.Errorf("%+v", got)
	}
	t.Setenv("CANAL_OUTBOX_RETENTION_ARCHIVE", "168h")
	t.Setenv("CANAL_OUTBOX_RETENTION_FAILED", "720h")
	got := run("", "migrate", "--print", "-c", file)
	for _, want := range []string{
		"CREATE TABLE IF NOT EXISTS `shop`.`t_local_message` (",
		"CREATE TABLE IF NOT EXISTS `shop`.`t_local_message_archive` LIKE `shop`.`t_local_message`;\n",
		"CREATE TABLE IF NOT EXISTS `shop`.`t_local_message_failed` LIKE `shop`.`t_local_message`;\n" +
			"SET @canal_outbox = (SELECT IF(COUNT(*) = 0, 'ALTER TABLE `shop`.`t_local_message_failed` ADD COLUMN moved_at ",
	} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q is not in %+v", want, got)
		}
	}
}

// A table's own ages decide which tables its rows need.
func TestMigratePrintsWhereRowsOfATableMove(t *testing.T) {
	file, _ := configure(t)
	t.Setenv("CANAL_OUTBOX_RETENTION_ARCHIVE", "168h")
	t.Setenv("CANAL_OUTBOX_TABLES_0_RETENTION_FAILED", "720h")
	got := run("", "migrate", "--print", "-c", file)
	if got.code != 0 || strings.Contains(got.out, "_archive") || !strings.Contains(got.out, "`t_local_message_failed` LIKE") {
		t.Errorf("%+v", got)
	}
}

func TestRetentionTexts(t *testing.T) {
	age := 90.0
	for want, s := range map[string]operator.RetentionStatus{
		"last pass 1m30s ago, 7 rows taken out":                       {LastSeconds: &age, Rows: 7},
		"last pass 1m30s ago, 7 rows taken out: the database is away": {LastSeconds: &age, Rows: 7, Error: "the database is away"},
		"running, 7 rows taken out so far":                            {Running: true, Rows: 7},
		"waits, 7 rows taken out so far: the server has 3 to purge":   {Running: true, Rows: 7, Paused: "the server has 3 to purge"},
		"no pass has come to its end yet, 0 rows taken out":           {},
	} {
		if got := retentionText(&s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, l := range map[string]app.Leaving{
		"shop.m\t12 rows that are SENT for 168h would be deleted":                        {Table: "shop.m", Status: "sent", Rows: 12, Seconds: 604800},
		"shop.m\tat least 12 rows that are FAILED for 1m30s would move to shop.m_failed": {Table: "shop.m", Status: "failed", Rows: 12, AtLeast: true, Seconds: 90, Into: "shop.m_failed"},
	} {
		if got := leavingText(l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
