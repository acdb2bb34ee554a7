package remoting

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"
)

const (
	pullLimit    = 10 * time.Second // of one request
	readPatience = 30 * time.Second // without a message while some are left
	pullPause    = 50 * time.Millisecond
)

// Offset returns an offset of a queue; the request is MinOffset, MaxOffset or SearchOffset, which needs the field timestamp.
func (c *Conn) Offset(request int, topic string, queue int, more map[string]string) (int64, error) {
	all := map[string]string{"topic": topic, "queueId": strconv.Itoa(queue)}
	maps.Copy(all, more)
	h, _, err := c.Ask(pullLimit, request, all, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(h.ExtFields["offset"], 10, 64)
}

// Read calls each with the messages of a queue from one offset to below another, until it returns false. It joins no consumer
// group; brokers require the name of one. removed reports that the broker no longer had messages of the range.
func (c *Conn) Read(group, topic string, queue int, from, end int64, each func(Message) (more bool, err error)) (removed bool, err error) {
	for last := time.Now(); from < end; {
		found, next, moved, err := c.pull(group, topic, queue, from)
		if err != nil {
			return removed, fmt.Errorf("read at offset %d: %w", from, err)
		}
		removed, from = removed || moved, next
		for _, m := range found {
			if m.QueueOffset >= end {
				break
			}
			if more, err := each(m); err != nil || !more {
				return removed, err
			}
		}
		switch {
		case len(found) > 0:
			last = time.Now()
		case time.Since(last) > readPatience:
			return removed, fmt.Errorf("read at offset %d: no message came within %s though there are some", from, readPatience)
		default:
			select {
			case <-c.ctx.Done():
				return removed, c.ctx.Err()
			case <-time.After(pullPause):
			}
		}
	}
	return removed, nil
}

// pull fetches some messages. The subscription is part of the request, so no group has to be subscribed.
func (c *Conn) pull(group, topic string, queue int, from int64) (found []Message, next int64, moved bool, err error) {
	const withSubscription = "4"
	h, body, err := c.Ask(pullLimit, Pull, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(from, 10), "maxMsgNums": "32",
		"sysFlag": withSubscription, "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
		"expressionType": "TAG",
	}, nil)
	var refused *Error
	if errors.As(err, &refused) && (refused.Code == PullNotFound || refused.Code == PullRetry || refused.Code == PullMoved) {
		moved, err = refused.Code == PullMoved, nil
	}
	if err == nil {
		next, err = strconv.ParseInt(h.ExtFields["nextBeginOffset"], 10, 64)
	}
	if err == nil {
		found, err = DecodeMessages(body)
	}
	return found, next, moved, err
}
