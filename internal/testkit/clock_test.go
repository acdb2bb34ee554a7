package testkit

import (
	"testing"
	"time"
)

func TestDatabaseClock(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		d := NewDatabase(t, DatabaseOptions{Flavor: flavor, Clock: true})
		for _, offset := range []time.Duration{0, time.Hour, -10 * time.Minute} {
			Must(t, d.SetClock(t.Context(), offset))
		}
	}
}
