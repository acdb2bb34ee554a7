package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/sink"
)

// Codes that only reading needs, see remoting.go.
const (
	requestPull         = 11
	requestSearchOffset = 29
	requestMaxOffset    = 30
	requestMinOffset    = 31

	codePullNotFound = 19
	codePullRetry    = 20
	codePullMoved    = 21
	codeNoGroup      = 26
)

const (
	pullTimeout  = 10 * time.Second // of one request
	readPatience = 30 * time.Second // without a message while some are left
	pullPause    = 50 * time.Millisecond
)

var _ sink.Reader = (*Sink)(nil)

// Read implements sink.Reader on separate connections: it joins no consumer group and commits no offset. Brokers require the name
// of a group with each pull; it is that of the producers, and where brokers do not create groups by themselves it must exist.
// Messages that a broker's timer holds are not in the topic yet.
func (s *Sink) Read(ctx context.Context, topic string, from, to time.Time, each func(sink.Record) error) (extent sink.Extent, err error) {
	queues, brokers, err := s.remote.readable(ctx, topic)
	if err != nil {
		return extent, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		r, err := s.reader(ctx, brokers[name])
		if err != nil {
			return extent, fmt.Errorf("read topic %s of broker %s: %w", topic, name, err)
		}
		for id := range queues[name] {
			q := queueReader{reader: r, name: fmt.Sprintf("%s queue %d", name, id), topic: topic, id: strconv.Itoa(id), from: from, to: to, each: each}
			if err = q.read(ctx); err != nil {
				break
			}
			extent.Shortened = extent.Shortened || q.shortened
		}
		r.close()
		if err != nil {
			return extent, err
		}
	}
	return extent, nil
}

// readable returns the number of readable queues of a topic per broker, by name, and the addresses of the masters.
func (r *remoting) readable(ctx context.Context, topic string) (queues map[string]int, brokers map[string]string, err error) {
	const permitsReading = 4
	body, err := r.askNames(ctx, requestRoute, map[string]string{"topic": topic})
	var refused *remoteError
	if errors.As(err, &refused) && refused.code == codeNoTopic {
		return nil, nil, errors.New("it does not exist, or the brokers that have it are away")
	} else if err != nil {
		return nil, nil, err
	}
	var data struct {
		Queues []struct {
			Broker string `json:"brokerName"`
			Read   int    `json:"readQueueNums"`
			Perm   int    `json:"perm"`
		} `json:"queueDatas"`
		Brokers []brokerData `json:"brokerDatas"`
	}
	if err := decodeStandard(body, &data); err != nil {
		return nil, nil, fmt.Errorf("its route: %w", err)
	}
	queues, brokers = map[string]int{}, masters(data.Brokers)
	for _, q := range data.Queues {
		switch {
		case q.Perm&permitsReading == 0:
			return nil, nil, fmt.Errorf("its permission on broker %s does not allow reading", q.Broker)
		case brokers[q.Broker] == "":
			return nil, nil, fmt.Errorf("the master of broker %s is away", q.Broker)
		}
		queues[q.Broker] = q.Read
	}
	return queues, brokers, nil
}

// reader is a connection to a broker with one request in flight.
type reader struct {
	*remoting
	group   string
	conn    net.Conn
	release func() bool
}

func (s *Sink) reader(ctx context.Context, addr string) (*reader, error) {
	d := net.Dialer{Timeout: pullTimeout}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &reader{s.remote, s.cfg.Group, conn, context.AfterFunc(ctx, func() { conn.Close() })}, nil
}

func (r *reader) close() {
	r.release()
	r.conn.Close()
}

// ask sends one request. The header is set with a *remoteError, too.
func (r *reader) ask(ctx context.Context, code int, fields map[string]string) (header, []byte, error) {
	if err := r.conn.SetDeadline(time.Now().Add(pullTimeout)); err != nil {
		return header{}, nil, err
	}
	h, body, err := r.exchange(r.conn, code, fields, nil)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return h, body, err
}

// queueReader reads one queue, whose messages are in the order of their store times.
type queueReader struct {
	*reader
	name, topic, id string
	from, to        time.Time
	each            func(sink.Record) error

	next, end int64
	shortened bool
	done      bool // a message of the end time was read
}

func (q *queueReader) read(ctx context.Context) error {
	if err := q.locate(ctx); err != nil {
		return fmt.Errorf("read topic %s, %s: %w", q.topic, q.name, err)
	}
	last := time.Now() // of progress
	for !q.done && q.next < q.end {
		found, err := q.pull(ctx)
		if err != nil {
			return fmt.Errorf("read topic %s, %s at offset %d: %w", q.topic, q.name, q.next, err)
		}
		if err := q.hand(found); err != nil {
			return err
		}
		switch {
		case len(found) > 0:
			last = time.Now()
		case time.Since(last) > readPatience:
			return fmt.Errorf("read topic %s, %s: no message came within %s though there are some", q.topic, q.name, readPatience)
		default:
			if err := rest(ctx, pullPause); err != nil {
				return err
			}
		}
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// locate looks up the start and the end. For a time, old brokers return any message of that millisecond, or the one before; so
// the request is for the previous millisecond, and hand skips what is too old.
func (q *queueReader) locate(ctx context.Context) error {
	least, err := q.offset(ctx, requestMinOffset, nil)
	if err != nil {
		return err
	}
	if q.end, err = q.offset(ctx, requestMaxOffset, nil); err != nil {
		return err
	}
	found, err := q.offset(ctx, requestSearchOffset, map[string]string{"timestamp": strconv.FormatInt(q.from.UnixMilli()-1, 10)})
	if err != nil {
		return err
	}
	q.next = max(least, found)
	q.shortened = least > 0 && q.next == least
	return nil
}

func (q *queueReader) offset(ctx context.Context, code int, fields map[string]string) (int64, error) {
	all := map[string]string{"topic": q.topic, "queueId": q.id}
	maps.Copy(all, fields)
	h, _, err := q.ask(ctx, code, all)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(h.ExtFields["offset"], 10, 64)
}

// pull fetches some messages and advances. The subscription is part of the request, so no group has to be subscribed.
func (q *queueReader) pull(ctx context.Context) ([]storedRecord, error) {
	const withSubscription = "4"
	h, body, err := q.ask(ctx, requestPull, map[string]string{
		"consumerGroup": q.group, "topic": q.topic, "queueId": q.id, "queueOffset": strconv.FormatInt(q.next, 10), "maxMsgNums": "32",
		"sysFlag": withSubscription, "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
		"expressionType": "TAG",
	})
	var refused *remoteError
	switch {
	case err == nil:
	case !errors.As(err, &refused):
		return nil, err
	case refused.code == codeNoGroup:
		return nil, fmt.Errorf("%w; brokers that make no consumer groups need one with the name of sink.rocketmq.group (%s): "+
			"mqadmin updateSubGroup -g %[2]s", err, q.group)
	case refused.code != codePullNotFound && refused.code != codePullRetry && refused.code != codePullMoved:
		return nil, err
	}
	next, bad := strconv.ParseInt(h.ExtFields["nextBeginOffset"], 10, 64)
	if bad != nil {
		return nil, fmt.Errorf("the next offset: %w", bad)
	}
	if refused != nil {
		if refused.code == codePullMoved { // the messages there have been removed meanwhile
			q.shortened = true
		}
		q.next = next
		return nil, nil
	}
	found, err := decodeStored(body)
	if err == nil {
		q.next = next
	}
	return found, err
}

// hand returns the messages of the range.
func (q *queueReader) hand(found []storedRecord) error {
	for _, m := range found {
		switch {
		case m.stored.Before(q.from) || m.offset >= q.end:
			continue
		case !q.to.IsZero() && !m.stored.Before(q.to):
			q.done = true
			return nil
		}
		err := q.each(sink.Record{
			MessageID: m.messageID, Body: m.body, At: m.stored, Place: q.name + " offset " + strconv.FormatInt(m.offset, 10),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
