package server

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The clock is exact in the hour that comes twice. A zone has the offset of each time around now, and the very second at which it changes; what is known is not looked for again.
func TestZone(t *testing.T) {
	const spring, autumn = testkit.Spring, testkit.Autumn
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		db := open(t, root(d), nil, Session{})
		testkit.Seasons(t, db, db)
		asked := func() (n int) {
			var name string
			testkit.Must(t, db.QueryRow("SHOW SESSION STATUS LIKE 'Com_select'").Scan(&name, &n))
			return n
		}
		day, hour := int64(86400), int64(3600)
		for _, c := range []struct {
			now     int64
			changes bool
		}{
			{spring - 30*day, false},
			{spring - 7*day, true},
			{spring - 1, true},
			{spring, true},
			{spring + hour, true},
			{spring + 2*day, false},
			{autumn - 7*day, true},
			{autumn - 1, true},
			{autumn, true},
			{autumn + 23*hour, true},
			{autumn + 2*day, false},
		} {
			testkit.SetClock(t, db, int(c.now))
			if now, err := Now(t.Context(), db); err != nil || now.Unix() != c.now {
				t.Errorf("the clock is %d, %v; want %d", now.Unix(), err, c.now)
			}
			zone, err := Zone(t.Context(), db, nil)
			testkit.Must(t, err)
			for _, at := range []int64{c.now - day, c.now, spring - 1, spring, autumn - 1, autumn, c.now + 8*day} {
				if at < c.now-day || at > c.now+8*day {
					continue
				}
				want := 3600
				if at >= spring && at < autumn {
					want = 7200
				}
				if got := offset(zone, at); got != want {
					t.Errorf("at %d the offset at %v is %d s, want %d", c.now, time.Unix(at, 0).UTC(), got, want)
				}
			}
			before := asked()
			again, err := Zone(t.Context(), db, zone)
			testkit.Must(t, err)
			if n := asked() - before; again != zone || n != 1 {
				t.Errorf("at %d the zone that is known is asked for by %d statements", c.now, n)
			}
			if c.changes == (offset(zone, c.now-day) == offset(zone, c.now+8*day)) {
				t.Errorf("at %d: a change is %v", c.now, !c.changes)
			}
		}
	})
}

// A local time behind the change of a zone is read with the offset of then.
func TestLocalTimesOfAZoneThatChanges(t *testing.T) {
	zone, err := changing("Test/Seasons", 3600, 7200, testkit.Spring)
	testkit.Must(t, err)
	for at, want := range map[string]string{
		"2026-03-29 01:59:59": "2026-03-29T00:59:59Z", "2026-03-29 03:00:00": "2026-03-29T01:00:00Z", "2026-03-29 09:00:00": "2026-03-29T07:00:00Z",
	} {
		got, err := time.ParseInLocation(time.DateTime, at, zone)
		testkit.Must(t, err)
		if got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s is %v, want %s", at, got.UTC(), want)
		}
	}
}
