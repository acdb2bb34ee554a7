package soak

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The environment is for make, the flags are for go test.
var (
	length   = flag.String("soak.duration", os.Getenv("SOAK_TIME"), "how long faults are put to the service (SOAK_TIME); no soak when empty")
	seed     = flag.String("soak.seed", os.Getenv("SOAK_SEED"), "what the faults follow from (SOAK_SEED); the clock when empty")
	database = flag.String("soak.database", cmp.Or(os.Getenv("SOAK_DATABASE"), "mysql"), "mysql or mariadb (SOAK_DATABASE)")
	relays   = flag.String("soak.relays", cmp.Or(os.Getenv("SOAK_RELAYS"), "1"), "how many relays; all but one stand by (SOAK_RELAYS)")
	broker   = flag.String("soak.broker", cmp.Or(os.Getenv("SOAK_BROKER"), "fake"), "fake, kafka or rocketmq (SOAK_BROKER)")
)

func TestMain(m *testing.M) { relay.Main(m) }

var (
	longPace  = Pace{5 * time.Second, 20 * time.Second, 2 * time.Second, 12 * time.Second}
	shortPace = Pace{200 * time.Millisecond, 1500 * time.Millisecond, time.Second, 3 * time.Second}
)

const (
	shortRun   = 2 * time.Minute // up to this duration faults are frequent
	longQuiet  = time.Minute
	shortQuiet = 20 * time.Second
)

// TestSoak runs faults on the relay for a while and checks every promise at quiet points.
func TestSoak(t *testing.T) {
	if *length == "" {
		t.Skip("make soak and make test-long say for how long")
	}
	span, err := time.ParseDuration(*length)
	testkit.Must(t, err)
	pace, quiet, number := longPace, longQuiet, uint64(time.Now().UnixNano())
	if span <= shortRun {
		pace, quiet = shortPace, shortQuiet
	}
	if *seed != "" {
		n, err := strconv.ParseUint(*seed, 10, 64)
		testkit.Must(t, err)
		number = n
	}
	t.Logf("soak: %v on %s and %s, seed %d", span, *database, *broker, number)
	n, err := strconv.Atoi(*relays)
	testkit.Must(t, err)
	w := newWorld(t, testkit.Flavor(*database), *broker, n)
	plan := NewPlan(number, pace, w.kinds()...)
	w.choose()
	stop := w.load.StartPaced(t, writers, pause)
	defer stop()
	w.quiet("at the beginning")
	for end, check := time.Now().Add(span), time.Now().Add(quiet); time.Now().Before(end); {
		f := plan.Next()
		w.pass(f.Pause)
		t.Logf("soak: %v", f)
		w.put(f)
		if time.Now().After(check) {
			w.quiet("after " + strconv.Itoa(w.faults) + " faults")
			check = time.Now().Add(quiet)
		}
	}
	w.quiet("at the end")
	w.stopInTime()
	t.Logf("soak: seed %d: %d faults, %d rows published, %d messages more than once, all of them explained, largest memory %.0f MB, "+
		"most goroutines %.0f", number, w.faults, w.load.Ledger.Len(), w.duplicates, w.memory/1e6, w.goroutines)
}
