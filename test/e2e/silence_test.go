package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// unanswered is RocketMQ whose broker takes every message, while the answers about those whose body holds a word are lost.
type unanswered struct {
	relay.RocketMQ
	names string
}

func (q unanswered) Sink() string { return fmt.Sprintf("rocketmq: {name_servers: [%q]}", q.names) }

// newUnanswered is a proxy between the relay and both servers: before the broker to lose answers, before the name server so that
// routes lead there.
func newUnanswered(t *testing.T, broker *testkit.RocketMQ, word string) unanswered {
	t.Helper()
	var mu sync.Mutex
	lost := map[string]bool{} // connection and number of a request whose answer is lost
	front := listenFrames(t, broker.BrokerAddr(), func(link string, f remotingFrame) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		id := fmt.Sprint(link, f.opaque)
		if !f.answer && bytes.Contains(f.body, []byte(word)) {
			lost[id] = true
		}
		return f.body, !f.answer || !lost[id]
	})
	names := listenFrames(t, broker.NameServer(), func(_ string, f remotingFrame) ([]byte, bool) {
		return bytes.ReplaceAll(f.body, []byte(broker.BrokerAddr()), []byte(front)), true
	})
	return unanswered{RocketMQ: relay.RocketMQ{RocketMQ: broker}, names: names}
}

// remotingFrame is a request or an answer of RocketMQ's remoting protocol: total length, header length with its coding in the
// top byte, header, body.
type remotingFrame struct {
	opaque int
	answer bool
	body   []byte
}

// listenFrames forwards frames between its address and target. Pass gets each frame and returns the body to forward, and whether
// to forward it.
func listenFrames(t *testing.T, target string, pass func(link string, f remotingFrame) ([]byte, bool)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close() // as a server that is down
				continue
			}
			mu.Lock()
			conns = append(conns, client, server)
			mu.Unlock()
			link := client.RemoteAddr().String() + " "
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				wg.Go(func() {
					pumpFrames(way[0], way[1], func(f remotingFrame) ([]byte, bool) { return pass(link, f) })
				})
			}
		}
	})
	return listener.Addr().String()
}

// pumpFrames ends when either side ends, and ends both.
func pumpFrames(from, to net.Conn, pass func(remotingFrame) ([]byte, bool)) {
	defer from.Close()
	defer to.Close()
	for {
		var lengths [8]byte
		if _, err := io.ReadFull(from, lengths[:]); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(lengths[:4])-4)
		if _, err := io.ReadFull(from, rest); err != nil {
			return
		}
		header := rest[:binary.BigEndian.Uint32(lengths[4:])&0xffffff]
		var parsed struct{ Opaque, Flag int }
		if err := json.Unmarshal(header, &parsed); err != nil {
			return
		}
		body, on := pass(remotingFrame{opaque: parsed.Opaque, answer: parsed.Flag&1 != 0, body: rest[len(header):]})
		if !on {
			continue
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
		frame = append(append(append(frame, lengths[4:]...), header...), body...)
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// A message that a real broker never answers, while it answers others, ends FAILED by its own attempts. The others lose none and the
// breaker stays closed.
func silenceOfOneMessage(t *testing.T, broker *testkit.RocketMQ) {
	l := newStage(t, testkit.SharedMySQL(t), newUnanswered(t, broker, "never-answered"), "retry: {max: 1, backoff: {base: 100ms, max: 200ms}}")
	l.Start(t)
	l.row("silent", topics[0], "never-answered")
	l.wait("the silent message to be FAILED while others flow", func() bool {
		l.load.Run(t, 20, 2)
		if state := l.breaker(); state != "closed" {
			t.Errorf("the breaker is %s", state)
		}
		return l.table.Count(t, "biz_key = 'silent' AND status = 3") == 1
	})
	l.waitCount(l.load.Ledger.Len(), "status = 2")
	if n := l.table.Count(t, "biz_key <> 'silent' AND retry_count <> 0"); n != 0 {
		t.Errorf("%d other rows lost an attempt", n)
	}
	l.stopInTime()
}
