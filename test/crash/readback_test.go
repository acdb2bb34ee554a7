package crash

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// patient waits for a broker that is busy: RocketMQ's takes seconds for its statistics under other load, and without them nothing is found.
const patient = "read_back: {max_time: 1m}"

var killings = flag.Int("kills", 0, "kill the relay this number of times with each pair of real servers, and let others take over half as often; 0: a few times on MySQL")

// SIGKILL with a real broker, between the broker and the journal and at any time: with read_back nothing is sent twice. The same
// kills without it are the control, and send some rows again.
func TestP3_ReadBackAfterKill(t *testing.T) {
	onPairs(t, brokers, func(t *testing.T, flavor testkit.Flavor, open opens) {
		t.Run("off", func(t *testing.T) { readBackAfterKills(t, flavor, open, "", "read_back: {enabled: false}", true) })
		t.Run("on", func(t *testing.T) { readBackAfterKills(t, flavor, open, "", patient, false) })
		t.Run("ordered", func(t *testing.T) { readBackAfterKills(t, flavor, open, ", ordering: key", patient, false) })
	})
}

// Another relay takes over after the SIGKILL of the active one, which stands by when it is back: what the dead one had sent and not
// journalled is in the topics, and not sent twice. The control is the same without read_back.
func TestP3_ReadBackAfterTakeOver(t *testing.T) {
	onPairs(t, brokers, func(t *testing.T, flavor testkit.Flavor, open opens) {
		t.Run("off", func(t *testing.T) {
			readBackAfterTakeOvers(t, flavor, open, "read_back: {enabled: false}", true, "kill")
		})
		t.Run("on", func(t *testing.T) { readBackAfterTakeOvers(t, flavor, open, patient, false, "kill") })
	})
}

// opens opens a broker with a topic.
type opens func(t *testing.T, topic string) relay.Broker

var brokers = map[string]opens{
	"kafka": func(t *testing.T, topic string) relay.Broker {
		kafka := testkit.SharedKafka(t)
		testkit.Must(t, kafka.CreateTopic(t.Context(), topic, 4, nil))
		return relay.Kafka{Kafka: kafka}
	},
	"rocketmq": func(t *testing.T, topic string) relay.Broker {
		if testing.Short() {
			t.Skip("-short: make test-rest runs it")
		}
		return relay.RocketMQ{RocketMQ: testkit.NewRocketMQ(t, testkit.RocketMQOptions{
			Topics: map[string]int{topic: 4}, Config: map[string]string{"flushDiskType": "SYNC_FLUSH"},
		})}
	},
}

// onPairs runs a test on each kind of broker, with MySQL, and with MariaDB when many kills are asked for.
func onPairs(t *testing.T, brokers map[string]opens, run func(*testing.T, testkit.Flavor, opens)) {
	flavors := testkit.Flavors()
	if *killings == 0 {
		flavors = flavors[:1]
	}
	for _, flavor := range flavors {
		for kind, open := range brokers {
			t.Run(string(flavor)+" "+kind, func(t *testing.T) { run(t, flavor, open) })
		}
	}
}

// times is how often a relay is killed.
func times(few, parts int) int {
	switch {
	case *killings > 0:
		return max(1, *killings/parts)
	case *long:
		return 10 * few
	}
	return few
}

// readBackAfterKills says whether there are copies. Without transactions a relay that lives sends again what the broker has not answered, and that
// may be a copy: then there is no verdict.
func readBackAfterKills(t *testing.T, flavor testkit.Flavor, open opens, of, extra string, copies bool) {
	t.Parallel()
	kills := times(4, 1)
	b := newLoadBed(t, flavor, open, of, extra)
	b.stop(t)
	for n := range kills {
		if n%2 == 0 {
			at := b.relay.StartUntil(t, "before-journal", 3)
			b.relay.AwaitConnected(t)
			b.load.RunUntil(t, b.relay, at, 3)
		} else {
			b.relay.Start(t)
			b.load.Run(t, 300+37*n, 3)
		}
		b.lateBeforeKill(t)
		b.relay.Kill()
	}
	b.relay.Start(t)
	account := b.account(t)
	t.Logf("%d copies of %d rows after %d kills", account.Duplicates(), b.load.Ledger.Len(), kills)
	switch got := account.Duplicates() > 0; {
	case got && !copies && b.unanswered && extra == patient:
		t.Log("the broker did not answer all messages")
	case got != copies:
		t.Errorf("%d copies after %d kills", account.Duplicates(), kills)
	}
	b.stop(t)
}

// newLoadBed returns a bed with a table, to which a load can write, and a relay that runs: rows of before would come from a first sweep, in no order.
func newLoadBed(t *testing.T, flavor testkit.Flavor, open opens, of, extra string) *bed {
	topic := fmt.Sprintf("read_back_%d", time.Now().UnixNano())
	broker := open(t, topic)
	db := testkit.SharedDatabase(t, flavor)
	schema := db.CreateSchema(t)
	b := &bed{db: db, sql: db.Connect(t, schema), broker: broker}
	b.table = relay.NewLayout(t, b.sql, schema, nil)
	b.table.Extra, b.ordered = of, strings.Contains(of, "ordering: key")
	b.load = relay.NewLoad(t, b.table, broker.TakesEmpty(), topic)
	b.relay = relay.New(t, relay.Options{Source: db.Addr(), Tables: []*relay.Table{b.table}, Sink: broker.Sink(), Extra: extra})
	b.relay.Start(t)
	return b
}

func readBackAfterTakeOvers(t *testing.T, flavor testkit.Flavor, open opens, extra string, copies bool, by ...string) {
	t.Parallel()
	n := times(3, 2)
	name := fmt.Sprintf("take_over_%d", time.Now().UnixNano())
	g := newGroupWith(t, leaseTime+"\n"+extra, func(int) string { return name }, open(t, name), testkit.SharedDatabase(t, flavor), 2, nil)
	stop := g.loads[0].StartPaced(t, 3, 2*time.Millisecond)
	g.more(t)
	g.positioned(t)
	active := 0
	for i := range n {
		old := active
		active = faults[by[i%len(by)]](t, g, old)
		g.awaitState(t, g.relays[old], "standby")
	}
	stop()
	account := g.account(t)[0]
	t.Logf("%d copies of %d rows after %d take-overs", account.Duplicates(), g.loads[0].Ledger.Len(), n)
	if got := account.Duplicates() > 0; got != copies {
		t.Errorf("%d copies after %d take-overs", account.Duplicates(), n)
		g.describeCopies(t)
		for _, r := range g.relays {
			for line := range strings.Lines(r.Log(t)) {
				if strings.Contains(line, "read_back") || strings.Contains(line, "WARN") {
					t.Log(strings.TrimSpace(line))
				}
			}
		}
	}
	for _, r := range g.relays {
		r.Stop(t)
	}
}

// describeCopies logs where and when the copies of some messages were stored, and from when to when their producers stored: one that still
// did at the time of the second copy lived, and has sent again what had no answer.
func (g *group) describeCopies(t *testing.T) {
	t.Helper()
	records := relay.ReadAll(t, g.broker, g.loads[0].Ledger.Topics()...)
	of := map[string][]relay.Record{}
	first := map[string]time.Time{} // record of a producer
	last := map[string]time.Time{}
	for _, r := range records {
		of[r.MessageID] = append(of[r.MessageID], r)
		if at, found := first[r.Producer]; !found || r.Stored.Before(at) {
			first[r.Producer] = r.Stored
		}
		if r.Stored.After(last[r.Producer]) {
			last[r.Producer] = r.Stored
		}
	}
	logged := map[string]int{}
	for id, copies := range of {
		if len(copies) == 1 {
			continue
		}
		slices.SortFunc(copies, func(a, b relay.Record) int { return a.Stored.Compare(b.Stored) })
		pair := copies[0].Producer + " and " + copies[len(copies)-1].Producer
		if logged[pair]++; logged[pair] > 3 {
			continue
		}
		for _, r := range copies {
			t.Logf("%s: partition %d offset %d stored at %s by %s, which stored from %s to %s", id, r.Partition, r.Offset,
				r.Stored.Format("15:04:05.000"), r.Producer, first[r.Producer].Format("15:04:05.000"), last[r.Producer].Format("15:04:05.000"))
		}
	}
	t.Log(logged)
}
