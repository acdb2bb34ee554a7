package kafka

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/twmb/franz-go/pkg/kadm"
)

// The brokers of a cluster are killed alternately while messages are sent, and each second time the relay as well. What the sink has reported as sent is
// found by the next process, and a reader of committed records sees each message once.
func TestExactlyOnThreeBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	c := testkit.NewKafkaCluster(t, 3)
	onCluster := func(cfg *config) { cfg.brokers = c.Addrs() }
	topic := createTopic(t, c[0].Addr(), nil)
	makeState(t, c[0].Addr())
	for _, k := range c { // the one that is asked may not know a new topic yet
		testkit.WaitFor(t, patience, "each broker to know the state topic", func() (known bool) {
			admin(t, k.Addr(), func(ctx context.Context, a *kadm.Client) error {
				topics, err := a.ListTopics(ctx, stateTopic("relay"))
				known = err == nil && topics[stateTopic("relay")].Err == nil && len(topics[stateTopic("relay")].Partitions) == 1
				return nil
			})
			return known
		})
	}
	x, _ := newExactly(t, c[0].Addr(), onCluster)
	const rounds, each = 6, 500
	all := messages(topic, rounds*each)
	sent := &sentRows{rows: map[outbox.Identity]bool{}}
	for n := range rounds {
		down := c[n%3]
		upTo := all[:(n+1)*each]
		rest := all[n*each : (n+1)*each]
		killed := make(chan error, 1)
		for at := 0; at < len(rest); at += 25 {
			if at == len(rest)/2 {
				go func() { killed <- down.Kill() }()
			}
			sent.send(x, rest[at:at+25])
		}
		testkit.Must(t, <-killed)
		if n%2 == 1 {
			reported := sent.list()
			x.kill()
			sent.killed()
			var rows []outbox.Identity
			x = openExactly(t, c[0].Addr(), onCluster)
			testkit.WaitFor(t, patience, "the next process to begin", func() (ok bool) { // the relay tries again, too
				var err error
				rows, err = x.Recover(t.Context(), ourTables)
				return err == nil
			})
			sent.found(t, reported, rows)
		}
		testkit.WaitFor(t, patience, "the messages to be sent", func() bool {
			if !sent.answered() {
				return false
			}
			if rest = sent.missing(upTo); len(rest) > 0 {
				sent.send(x, rest)
			}
			return len(rest) == 0
		})
		testkit.Must(t, down.Start(t.Context()))
		inSync(t, c, topic, stateTopic("relay"))
	}
	eachOnce(t, c[0].Addr(), topic, rounds*each)
	settle(x, all)
	testkit.Must(t, x.Mark(t.Context()))
	x.kill()
	_, rows := newExactly(t, c[0].Addr(), onCluster)
	sameRows(t, rows, nil)
}

// sentRows are those that a sink has reported as sent.
type sentRows struct {
	mu   sync.Mutex
	rows map[outbox.Identity]bool
	life int // of the processes
	left int // messages of this one without a result
}

func (s *sentRows) send(x *Exactly, list []*outbox.Message) {
	s.mu.Lock()
	s.left += len(list)
	life := s.life
	s.mu.Unlock()
	x.Send(slices.Clone(list), func(results []sink.Result) { s.add(life, results) })
}

func (s *sentRows) add(life int, results []sink.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if life == s.life {
		s.left -= len(results)
	}
	for _, r := range results {
		if r.Class == outbox.ClassNone {
			s.rows[r.Message.Identity] = true
		}
	}
}

// killed drops the results that a killed process owes.
func (s *sentRows) killed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.left = s.life+1, 0
}

func (s *sentRows) answered() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == 0
}

func (s *sentRows) list() (all []outbox.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.rows {
		all = append(all, id)
	}
	return all
}

func (s *sentRows) missing(list []*outbox.Message) (rest []*outbox.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range list {
		if !s.rows[m.Identity] {
			rest = append(rest, m)
		}
	}
	return rest
}

// found takes over what a new process has found, which must have all that was reported.
func (s *sentRows) found(t *testing.T, reported, rows []outbox.Identity) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[outbox.Identity]bool{}
	for _, id := range rows {
		s.rows[id], there[id] = true, true
	}
	for _, id := range reported {
		if !there[id] {
			t.Fatalf("row %s was reported as sent, and the next process does not find it", id.ID)
		}
	}
}

// inSync waits until all replicas of topics have what their leaders have: then any broker may be killed.
func inSync(t *testing.T, c testkit.KafkaCluster, topics ...string) {
	t.Helper()
	topics = append(topics, "__transaction_state")
	testkit.WaitFor(t, patience, "the replicas to follow", func() bool {
		ok := true
		admin(t, c[0].Addr(), func(ctx context.Context, a *kadm.Client) error {
			details, err := a.ListTopicsWithInternal(ctx, topics...)
			if err != nil {
				ok = false
				return nil
			}
			details.EachPartition(func(p kadm.PartitionDetail) { ok = ok && p.Err == nil && len(p.ISR) == len(c) })
			return nil
		})
		return ok
	})
}
