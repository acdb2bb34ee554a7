package rocketmq

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// cluster is a fake name server with fake brokers that speak the remoting protocol.
type cluster struct {
	names *fakeServer

	mu        sync.Mutex
	changed   *sync.Cond
	brokers   map[string]*fakeBroker
	topics    map[string][]fakeQueues
	widest    map[string][]fakeQueues   // what the library gets
	nameReply func(topic string) *reply // overrides the route answer when not nil
	asked     map[string]int            // route requests by topic
}

type fakeQueues struct {
	broker      string
	write, perm int
}

// reply is the scripted answer to one request.
type reply struct {
	code    int
	remark  string
	swallow bool // no answer
	store   bool // store although the code reports a failure
	hang    <-chan struct{}
	cut     bool // close the connection without an answer
}

// request is a send as the broker received it.
type request struct {
	code     int
	topic    string
	queue    int
	messages []storedMessage
}

type storedMessage struct {
	queue      int
	offset     int
	body       string
	properties map[string]string
}

type fakeBroker struct {
	*fakeServer
	cluster *cluster
	name    string
	release int // as it reports it

	// guarded by cluster.mu
	script   func(request) reply
	requests []request
	store    map[string][]storedMessage
	busy     map[string]int // requests in progress, by topic and queue
	crowded  bool           // a queue had two requests at the same time
	fields   []map[string]string
}

// fakeServer is a listener that can be stopped, started again on its port, and frozen.
type fakeServer struct {
	t      testing.TB
	addr   string
	handle func(h header, body []byte) (header, []byte, reply)

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	frozen   chan struct{} // closed when not frozen
	accepted int
	work     sync.WaitGroup
}

func newFakeServer(t testing.TB, handle func(header, []byte) (header, []byte, reply)) *fakeServer {
	s := &fakeServer{t: t, addr: testkit.FreeAddress(t), handle: handle, conns: map[net.Conn]bool{}, frozen: make(chan struct{})}
	close(s.frozen)
	s.start()
	t.Cleanup(func() {
		s.stop()
		s.thaw()
		s.work.Wait()
	})
	return s
}

func (s *fakeServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := testkit.Listen(s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.listener = l
	s.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.accepted++
			s.mu.Unlock()
			s.work.Go(func() { s.serve(conn) })
		}
	})
}

// stop refuses connections and resets existing ones.
func (s *fakeServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener.Close()
	for conn := range s.conns {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	clear(s.conns)
}

// freeze accepts but answers nothing until thaw, like a stopped process.
func (s *fakeServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = make(chan struct{})
}

func (s *fakeServer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.frozen:
	default:
		close(s.frozen)
	}
}

func (s *fakeServer) gate() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen
}

func (s *fakeServer) serve(conn net.Conn) {
	defer conn.Close()
	var write sync.Mutex
	for {
		<-s.gate()
		h, body, err := readFrame(conn)
		if err != nil {
			return
		}
		s.work.Go(func() {
			<-s.gate()
			answer, payload, how := s.handle(h, body)
			if how.cut {
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
			if how.swallow || how.cut {
				return
			}
			answer.Opaque, answer.Flag, answer.Language = h.Opaque, flagResponse, "JAVA"
			write.Lock()
			defer write.Unlock()
			_ = writeFrame(conn, answer, payload) // the client may be gone
		})
	}
}

func newCluster(t testing.TB, brokers ...string) *cluster {
	c := &cluster{brokers: map[string]*fakeBroker{}, topics: map[string][]fakeQueues{}, widest: map[string][]fakeQueues{}, asked: map[string]int{}}
	c.changed = sync.NewCond(&c.mu)
	if len(brokers) == 0 {
		brokers = []string{"broker-a"}
	}
	for _, name := range brokers {
		b := &fakeBroker{cluster: c, name: name, store: map[string][]storedMessage{}, busy: map[string]int{}}
		b.fakeServer = newFakeServer(t, b.answer)
		c.brokers[name] = b
	}
	c.names = newFakeServer(t, c.answerNames)
	return c
}

func (c *cluster) topic(name string, queues ...fakeQueues) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(queues) == 0 {
		queues = []fakeQueues{{"broker-a", 4, 6}}
	}
	c.topics[name] = queues
	if len(queues) >= len(c.widest[name]) {
		c.widest[name] = queues
	}
}

// queues returns the route of a topic. It never removes a broker for the library: the library would then change, without a lock,
// a map that sends read, and the race detector would fail the test for it.
func (c *cluster) queues(h header) ([]fakeQueues, bool) {
	topic := h.ExtFields["topic"]
	list, known := c.topics[topic]
	if known && h.Version != protocolVersion {
		list = c.widest[topic]
	}
	return list, known
}

func (c *cluster) answerNames(h header, _ []byte) (header, []byte, reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Code == requestClusters {
		table := map[string]any{}
		for name, b := range c.brokers {
			table[name] = map[string]any{"brokerName": name, "cluster": "c", "brokerAddrs": map[string]string{"0": b.addr}}
		}
		return header{}, oldJSON(map[string]any{"brokerAddrTable": table}), reply{}
	}
	topic := h.ExtFields["topic"]
	c.asked[topic]++
	c.changed.Broadcast()
	if c.nameReply != nil {
		if r := c.nameReply(topic); r != nil {
			return header{Code: r.code, Remark: r.remark}, nil, *r
		}
	}
	queues, known := c.queues(h)
	if !known {
		return header{Code: codeNoTopic, Remark: "No topic route info in name server for the topic: " + topic}, nil, reply{}
	}
	var queueDatas, brokerDatas []map[string]any
	for _, q := range queues {
		queueDatas = append(queueDatas, map[string]any{"brokerName": q.broker, "readQueueNums": q.write, "writeQueueNums": q.write, "perm": q.perm})
		if b := c.brokers[q.broker]; b != nil {
			brokerDatas = append(brokerDatas, map[string]any{"brokerName": q.broker, "cluster": "c", "brokerAddrs": map[string]string{"0": b.addr}})
		}
	}
	return header{}, oldJSON(map[string]any{"queueDatas": queueDatas, "brokerDatas": brokerDatas}), reply{}
}

// oldJSON writes number keys without quotes, as name servers do.
func oldJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return []byte(strings.ReplaceAll(string(text), `"0":`, `0:`))
}

func (b *fakeBroker) answer(h header, body []byte) (header, []byte, reply) {
	if h.Code == requestHeartbeat {
		return header{Version: b.release}, nil, reply{}
	}
	req := parseSend(h, body)
	if len(req.messages) == 0 {
		return header{Code: 3, Remark: fmt.Sprintf("request code %d not supported", h.Code)}, nil, reply{}
	}
	key := fmt.Sprint(req.topic, "/", req.queue)
	c := b.cluster
	c.mu.Lock()
	b.busy[key]++
	b.crowded = b.crowded || b.busy[key] > 1
	b.requests = append(b.requests, req)
	b.fields = append(b.fields, h.ExtFields)
	c.changed.Broadcast()
	script := b.script
	c.mu.Unlock()
	var how reply
	if script != nil {
		how = script(req)
	}
	if how.hang != nil {
		<-how.hang
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b.busy[key]--
	answer := header{Code: how.code, Remark: how.remark}
	if how.store || how.code == codeSuccess || how.code >= codeFlushDisk && how.code <= codeFlushSlave {
		answer.ExtFields = b.append(req)
	}
	return answer, nil, how
}

// append stores a request's messages and returns the fields of the answer.
func (b *fakeBroker) append(req request) map[string]string {
	var ids []string
	first := 0
	for _, m := range b.store[req.topic] {
		if m.queue == req.queue {
			first++
		}
	}
	for i, m := range req.messages {
		m.queue, m.offset = req.queue, first+i
		b.store[req.topic] = append(b.store[req.topic], m)
		ids = append(ids, fmt.Sprintf("%s-%s-%d-%d", b.name, req.topic, req.queue, m.offset))
	}
	return map[string]string{"msgId": strings.Join(ids, ","), "queueId": strconv.Itoa(req.queue), "queueOffset": strconv.Itoa(first)}
}

func parseSend(h header, body []byte) request {
	f := h.ExtFields
	req := request{code: h.Code}
	switch h.Code {
	case 10:
		req.topic = f["topic"]
		req.queue, _ = strconv.Atoi(f["queueId"])
		req.messages = []storedMessage{{body: string(body), properties: splitProperties(f["properties"])}}
	case 320:
		req.topic = f["b"]
		req.queue, _ = strconv.Atoi(f["e"])
		for len(body) > 0 {
			entry := body[:binary.BigEndian.Uint32(body)]
			n := binary.BigEndian.Uint32(entry[16:])
			text, props := entry[20:20+n], entry[20+n:]
			if int(binary.BigEndian.Uint16(props)) != len(props)-2 {
				panic("the properties' length is wrong")
			}
			req.messages = append(req.messages, storedMessage{body: string(text), properties: splitProperties(string(props[2:]))})
			body = body[len(entry):]
		}
	}
	return req
}

func splitProperties(text string) map[string]string {
	found := map[string]string{}
	for pair := range strings.SplitSeq(text, "\x02") {
		if name, value, ok := strings.Cut(pair, "\x01"); ok {
			found[name] = value
		}
	}
	return found
}

// until waits for a condition over the cluster's state, which is called with the lock held.
func (c *cluster) until(t testing.TB, what string, met func() bool) {
	t.Helper()
	expired := false
	timer := time.AfterFunc(3*time.Minute, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		expired = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !met() {
		if expired {
			t.Fatalf("timed out waiting for %s", what)
		}
		c.changed.Wait()
	}
}

// stored returns the messages of a topic on all brokers.
func (c *cluster) stored(topic string) []storedMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []storedMessage
	for _, b := range c.brokers {
		all = append(all, b.store[topic]...)
	}
	return all
}

func (c *cluster) scripted(broker string, script func(request) reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[broker].script = script
}
