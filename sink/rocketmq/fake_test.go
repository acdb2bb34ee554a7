package rocketmq

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// cluster is the model of RocketMQ for tests: a name server and brokers that speak the remoting protocol. TestRocketMQ/TheFakeIsAsStrict
// compares its answers with those of real servers.
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
	release int                   // as it reports it
	state   map[int]func() string // the body of its answers to questions for its configuration and its state, by their code

	// guarded by cluster.mu
	script   func(request) reply
	requests []request
	store    map[string][]storedMessage
	busy     map[string]int // requests in progress, by topic and queue
	crowded  bool           // a queue had two requests at the same time
	fields   []map[string]string
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
func (c *cluster) queues(h remoting.Header) ([]fakeQueues, bool) {
	topic := h.ExtFields["topic"]
	list, known := c.topics[topic]
	if known && h.Version != remoting.Version {
		list = c.widest[topic]
	}
	return list, known
}

func (c *cluster) answerNames(h remoting.Header, _ []byte) (remoting.Header, []byte, reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.Code == remoting.Clusters {
		table := map[string]any{}
		for name, b := range c.brokers {
			table[name] = map[string]any{"brokerName": name, "cluster": "c", "brokerAddrs": map[string]string{"0": b.addr}}
		}
		return remoting.Header{}, oldJSON(map[string]any{"brokerAddrTable": table}), reply{}
	}
	topic := h.ExtFields["topic"]
	c.asked[topic]++
	c.changed.Broadcast()
	if c.nameReply != nil {
		if r := c.nameReply(topic); r != nil {
			return remoting.Header{Code: r.code, Remark: r.remark}, nil, *r
		}
	}
	queues, known := c.queues(h)
	if !known {
		return remoting.Header{Code: remoting.NoTopic, Remark: "No topic route info in name server for the topic: " + topic}, nil, reply{}
	}
	var queueDatas, brokerDatas []map[string]any
	for _, q := range queues {
		queueDatas = append(queueDatas, map[string]any{"brokerName": q.broker, "readQueueNums": q.write, "writeQueueNums": q.write, "perm": q.perm})
		if b := c.brokers[q.broker]; b != nil {
			brokerDatas = append(brokerDatas, map[string]any{"brokerName": q.broker, "cluster": "c", "brokerAddrs": map[string]string{"0": b.addr}})
		}
	}
	return remoting.Header{}, oldJSON(map[string]any{"queueDatas": queueDatas, "brokerDatas": brokerDatas}), reply{}
}

// oldJSON writes number keys without quotes, as name servers do.
func oldJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return []byte(strings.ReplaceAll(string(text), `"0":`, `0:`))
}

func (b *fakeBroker) answer(h remoting.Header, body []byte) (remoting.Header, []byte, reply) {
	if h.Code == remoting.Heartbeat {
		return remoting.Header{Version: b.release}, nil, reply{}
	}
	if state := b.state[h.Code]; state != nil {
		if body := state(); body != "" {
			return remoting.Header{}, []byte(body), reply{}
		}
		return remoting.Header{Code: remoting.SystemError, Remark: "java.util.NoSuchElementException"}, nil, reply{} // as a broker that has just started
	}
	req := parseSend(h, body)
	if refused := b.refusal(h, req); refused.code != remoting.Success {
		return remoting.Header{Code: refused.code, Remark: refused.remark}, nil, reply{}
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
	answer := remoting.Header{Code: how.code, Remark: how.remark}
	if how.store || how.code == remoting.Success || how.code >= remoting.FlushDisk && how.code <= remoting.FlushSlave {
		answer.ExtFields = b.append(req)
	}
	return answer, nil, how
}

// refusal is the answer to what a broker never stores.
func (b *fakeBroker) refusal(h remoting.Header, req request) reply {
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	queues := -1
	for _, q := range b.cluster.topics[req.topic] {
		if q.broker == b.name {
			queues = q.write
		}
	}
	switch {
	case len(req.messages) == 0:
		return reply{code: remoting.NotSupported, remark: fmt.Sprintf(" request type %d not supported", h.Code)}
	case topicFault(req.topic) != "":
		return reply{code: remoting.BadParameter, remark: "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"}
	case queues < 0:
		return reply{code: remoting.NoTopic, remark: fmt.Sprintf("topic[%s] not exist, apply first please!", req.topic)}
	case req.queue >= queues:
		return reply{code: remoting.BadParameter, remark: fmt.Sprintf("request queueId[%d] is illegal, TopicConfig", req.queue)}
	}
	for _, m := range req.messages {
		switch size := propertiesSize(m.properties); {
		case len(m.body) == 0:
			return reply{code: remoting.SystemError, remark: "java.lang.NullPointerException"}
		case len(m.body) > 4<<20 || size > 32767:
			return reply{code: remoting.Illegal, remark: "the message is illegal, maybe msg body or properties length not matched."}
		}
	}
	return reply{}
}

func propertiesSize(properties map[string]string) (size int) {
	for name, value := range properties {
		size += len(name) + len(value) + 2
	}
	return size
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

func parseSend(h remoting.Header, body []byte) request {
	f := h.ExtFields
	req := request{code: h.Code}
	switch h.Code {
	case 10:
		req.topic = f["topic"]
		req.queue, _ = strconv.Atoi(f["queueId"])
		req.messages = []storedMessage{{body: string(body), properties: remoting.SplitProperties(f["properties"])}}
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
			req.messages = append(req.messages, storedMessage{body: string(text), properties: remoting.SplitProperties(string(props[2:]))})
			body = body[len(entry):]
		}
	}
	return req
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
