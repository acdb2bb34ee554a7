package adversary

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The environment is for make, the flags are for go test.
var (
	length   = flag.String("adversary.duration", os.Getenv("ADVERSARY_TIME"), "run new seeds for this time (ADVERSARY_TIME); with a seed and without this: that seed alone")
	first    = flag.String("adversary.seed", os.Getenv("ADVERSARY_SEED"), "the first seed (ADVERSARY_SEED); the clock when empty")
	database = flag.String("adversary.database", os.Getenv("ADVERSARY_DATABASE"), "mysql or mariadb (ADVERSARY_DATABASE); by the seed when empty")
	broker   = flag.String("adversary.broker", cmp.Or(os.Getenv("ADVERSARY_BROKER"), "fake"), "fake or kafka (ADVERSARY_BROKER)")
	steps    = flag.Int("adversary.steps", 60, "steps of a run")
	only     = flag.String("adversary.only", "", "a regular expression of the kinds of steps that are done; the others are left out")
	strict   = flag.Bool("adversary.strict", true, "compare the order of rows that were changed in the transaction that inserted them, too")
	skip     = flag.String("adversary.skip", os.Getenv("ADVERSARY_SKIP"), "a regular expression of the kinds of steps that are left out (ADVERSARY_SKIP)")
)

func TestMain(m *testing.M) { relay.Main(m) }

// TestAdversary runs one seed after the other.
func TestAdversary(t *testing.T) {
	if *length == "" && *first == "" {
		t.Skip("make adversary and make test-long run it")
	}
	seed := uint64(time.Now().Unix())
	if *first != "" {
		n, err := strconv.ParseUint(*first, 10, 64)
		testkit.Must(t, err)
		seed = n
	}
	span := time.Duration(0)
	if *length != "" {
		d, err := time.ParseDuration(*length)
		testkit.Must(t, err)
		span = d
	}
	flavors := testkit.Flavors()
	if *database != "" {
		flavors = []testkit.Flavor{testkit.Flavor(*database)}
	}
	servers := map[testkit.Flavor]*testkit.Database{}
	for end := time.Now().Add(span); ; seed++ {
		flavor := flavors[seed%uint64(len(flavors))]
		if servers[flavor] == nil {
			servers[flavor] = testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
		}
		t.Run(fmt.Sprintf("seed_%d_%s", seed, flavor), func(t *testing.T) { run(t, seed, servers[flavor]) })
		if time.Now().After(end) {
			return
		}
	}
}

// TestThePlanFollowsFromTheSeed also expects every kind of step in it.
func TestThePlanFollowsFromTheSeed(t *testing.T) {
	seen := map[*kind]bool{}
	again, other := Plan(7, 2000, 2, 2), Plan(8, 2000, 2, 2)
	different := false
	for i, s := range Plan(7, 2000, 2, 2) {
		if s != again[i] {
			t.Fatal("the same seed gives two plans")
		}
		seen[s.kind], different = true, different || s != other[i]
	}
	if !different {
		t.Error("two seeds give one plan")
	}
	for i := range kinds {
		if !seen[&kinds[i]] {
			t.Errorf("no step is %q", kinds[i].name)
		}
	}
}
