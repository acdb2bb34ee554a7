package testkit

import (
	"database/sql"
	"fmt"
	"testing"
)

// In the time zone Test/Seasons summer time begins at Spring, when 2026-03-29 02:00 becomes 03:00, and ends at Autumn, when 2026-10-25 03:00 becomes 02:00.
// Both are seconds since 1970.
const (
	Spring = 1774746000
	Autumn = 1792890000
)

// Seasons makes the time zone Test/Seasons on a server, and leaves the pool one connection, whose clock SetClock sets. admin may write into schema mysql.
func Seasons(t testing.TB, admin, pool *sql.DB) {
	t.Helper()
	for _, statement := range []string{
		"REPLACE INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9001, 'N')",
		"REPLACE INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Test/Seasons', 9001)",
		"REPLACE INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) VALUES (9001, 0, 7200, 1, 'SUM'), (9001, 1, 3600, 0, 'STD')",
		fmt.Sprintf("REPLACE INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES (9001, 1000000000, 1), (9001, %d, 0), (9001, %d, 1)", Spring, Autumn),
	} {
		Exec(t, admin, statement)
	}
	pool.SetMaxOpenConns(1)
}

// SetClock sets the time of the one connection of a pool, in the zone of Seasons.
func SetClock(t testing.TB, pool *sql.DB, at int) {
	t.Helper()
	Exec(t, pool, "SET SESSION time_zone = 'Test/Seasons'")
	Exec(t, pool, fmt.Sprintf("SET SESSION timestamp = %d", at))
}
