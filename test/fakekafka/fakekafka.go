// Package fakekafka is the model of a Kafka cluster for all tests: kfake in the test's own process, on the wire, with a network that
// breaks on command. It can go away and come back with its data, hold back requests, and lose its replies after it has done what
// was requested.
//
// Guarantees: ports and data stay over Stop and Start; a fault of the network covers existing connections, too; Shut, which the end
// of a test calls, ends every goroutine that it started.
package fakekafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// Cluster is a cluster of one or more brokers. It implements relay.Broker. The methods that break something may be called
// from one goroutine at a time.
type Cluster struct {
	*kfake.Cluster
	t       testing.TB // nil for a cluster of Start
	dir     string
	release func() // gives the ports back
	addrs   []string
	opts    []kfake.Opt
	network *network
	down    bool
}

// New is Start for a test: it fails the test on error and shuts the cluster down at its end.
func New(t testing.TB, brokers int, topics map[string]int, more ...kfake.Opt) *Cluster {
	t.Helper()
	c, err := Start(brokers, topics, more...)
	testkit.Must(t, err)
	c.t = t
	t.Cleanup(func() { testkit.Must(t, c.Shut()) })
	return c
}

// Start starts a cluster that has the topics, name to number of partitions; with access control the topics are kfake.SeedTopics. The
// caller shuts it down.
func Start(brokers int, topics map[string]int, more ...kfake.Opt) (_ *Cluster, err error) {
	c := &Cluster{network: &network{open: make(chan struct{}), conns: map[*conn]struct{}{}}, down: true, release: func() {}}
	close(c.network.open)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Shut())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "fakekafka-"); err != nil {
		return nil, err
	}
	var ports []int // kept while the cluster is away
	if ports, c.release, err = testkit.ReservePorts(brokers); err != nil {
		return nil, err
	}
	c.opts = append(more, kfake.NumBrokers(brokers), kfake.DataDir(c.dir), kfake.ListenFn(c.network.listen), kfake.Ports(ports...))
	if err := c.Start(); err != nil {
		return nil, err
	}
	c.addrs = c.ListenAddrs()
	for name, partitions := range topics {
		if err := c.CreateTopic(name, partitions); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Shut ends the cluster and removes its data.
func (c *Cluster) Shut() (err error) {
	c.Stop()
	c.release()
	for range 1000 { // a broker that is closed may still write
		if err = os.RemoveAll(c.dir); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// CreateTopic makes a topic and returns when it can be written.
func (c *Cluster) CreateTopic(name string, partitions int) error {
	return testkit.CreateKafkaTopic(context.Background(), c.Addr(), name, partitions, nil)
}

// DeleteTopic removes a topic with its messages.
func (c *Cluster) DeleteTopic(name string) error {
	return testkit.DeleteKafkaTopic(context.Background(), c.Addr(), name)
}

// Fault makes the cluster answer with an error until it is removed or the cluster is stopped.
func (c *Cluster) Fault(f testkit.KafkaFault) *testkit.KafkaFaultHandle {
	return testkit.FaultKafka(c.t, c.Cluster, f)
}

// Addr is host:port of the first broker.
func (c *Cluster) Addr() string { return c.addrs[0] }

// Sink implements relay.Broker.
func (c *Cluster) Sink() string { return `kafka: {brokers: ["` + strings.Join(c.addrs, `", "`) + `"]}` }

// TakesEmpty implements relay.Broker.
func (*Cluster) TakesEmpty() bool { return true }

// Read implements relay.Broker.
func (c *Cluster) Read(ctx context.Context, topic string) ([]relay.Record, error) {
	return relay.ReadKafka(ctx, c.Addr(), topic)
}

// Stop breaks connections and refuses new ones.
func (c *Cluster) Stop() {
	if !c.down {
		c.network.hole(false)
		c.Close()
		c.down = true
	}
}

// Start starts a stopped cluster again with its data.
func (c *Cluster) Start() (err error) {
	if !c.down {
		return nil
	}
	if c.Cluster, err = kfake.NewCluster(c.opts...); err != nil {
		return fmt.Errorf("start the fake cluster: %w", err)
	}
	c.down = false
	return nil
}

// Swallow makes the cluster accept connections and requests and do nothing with them. Switched off, it serves the requests that
// came meanwhile, as after a long pause.
func (c *Cluster) Swallow(on bool) { c.network.hole(on) }

// LoseReplies makes the cluster serve requests and lose its replies. Switched off, connections are reset, because what was lost
// on them stays lost.
func (c *Cluster) LoseReplies(on bool) { c.network.loseReplies(on) }

// network is the way to all brokers.
type network struct {
	mu    sync.Mutex
	open  chan struct{} // closed while requests pass
	holed bool
	lost  bool
	conns map[*conn]struct{}
}

func (n *network) listen(_, address string) (net.Listener, error) {
	l, err := testkit.Listen(address)
	if err != nil {
		return nil, err
	}
	return &listener{l, n}, nil
}

func (n *network) hole(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case on && !n.holed:
		n.open = make(chan struct{})
	case !on && n.holed:
		close(n.open)
	}
	n.holed = on
}

func (n *network) loseReplies(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost && !on {
		for c := range n.conns {
			_ = c.Conn.Close() // its reader and its writer notice
		}
	}
	n.lost = on
}

func (n *network) state() (open <-chan struct{}, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open, n.lost
}

type listener struct {
	net.Listener
	network *network
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, network: l.network, closed: make(chan struct{})}
	l.network.mu.Lock()
	l.network.conns[c] = struct{}{}
	l.network.mu.Unlock()
	return c, nil
}

// conn is the broker's side of a connection.
type conn struct {
	net.Conn
	network *network
	once    sync.Once
	closed  chan struct{}
}

// Read holds back what has come while the network swallows.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	open, _ := c.network.state()
	select {
	case <-open:
	case <-c.closed:
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if _, lost := c.network.state(); lost {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		delete(c.network.conns, c)
		c.network.mu.Unlock()
	})
	return c.Conn.Close()
}
