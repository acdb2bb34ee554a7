package rocketmq

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// Config says where the cluster is and what it accepts. The zero value of every field but NameServers is usable. It holds a
// secret: never print it whole.
//
// TLS is not offered, because client library v2.1.2 has none: use a private network, or a TLS proxy on the machine. Name servers
// and brokers are accessed directly; the gRPC proxy of RocketMQ 5 is not supported (failures B15, B19). A namespace is part of
// the topic, NAMESPACE%TOPIC, as the brokers store it.
type Config struct {
	// NameServers are host:port each. Names are resolved at every dial.
	NameServers []string
	// Group is the producer group, "canal-outbox" when empty.
	Group string
	// AccessKey and SecretKey are the credentials of the cluster's access lists; both or none.
	AccessKey, SecretKey string
	// MaxMessageBytes is the largest body, 4 MiB when 0: maxMessageSize of the brokers.
	MaxMessageBytes int
	// MaxBatchMessages is the largest number of messages in one request, 256 when 0.
	MaxBatchMessages int
	// MaxRequests is the number of requests in flight over all queues, 32 when 0; one queue has at most one.
	MaxRequests int
	// Lenient counts a message that a broker stored but did not flush or copy to its replica in time as published, marked
	// LessDurable. Without it the outcome is ClassUnknown: the message is sent again.
	Lenient bool
	// NativeDelay says that the brokers have timers (5.0 and newer with timerWheelEnable; older ones deliver at once): a message
	// marked as Later is sent to them, in a separate request.
	NativeDelay bool
	// MaxDelay is the longest delay that the brokers accept, three days when 0: their timerMaxDelaySec.
	MaxDelay time.Duration
	// May is sink.Limits.May: while it is false no message is sent.
	May func() bool
}

const (
	defaultGroup     = "canal-outbox"
	defaultMaxBytes  = 4 << 20
	defaultBatch     = 256
	defaultRequests  = 32
	defaultMaxDelay  = 72 * time.Hour
	frameLimit       = 15 << 20 // brokers close the connection on a frame above 16 MiB
	batchBytes       = 1 << 20  // of one request; a larger message is sent alone
	maxBatchMessages = 5000     // measured: the answer lists an id for each message
	maxRequests      = 1024
)

// normalize fills in the defaults and returns every fault.
func (c *Config) normalize() error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf("rocketmq: "+format, args...)) }
	setDefault(&c.Group, defaultGroup)
	setDefault(&c.MaxMessageBytes, defaultMaxBytes)
	setDefault(&c.MaxBatchMessages, defaultBatch)
	setDefault(&c.MaxRequests, defaultRequests)
	setDefault(&c.MaxDelay, defaultMaxDelay)
	if len(c.NameServers) == 0 {
		refuse("no name server is given: set host:port of at least one")
	}
	for _, addr := range c.NameServers {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			refuse("name server %q is not host:port", addr)
		}
	}
	if fault := topicFault(c.Group); fault != "" { // brokers check groups by the same pattern
		refuse("producer group %q: only 1 to %d letters, digits and %% | _ - are allowed", c.Group, maxTopicLength)
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		refuse("access key and secret key belong together: one of them is missing")
	}
	inRange := func(what string, n, limit int) {
		if n < 1 || n > limit {
			refuse("%s is %d, allowed are 1 to %d", what, n, limit)
		}
	}
	inRange("the largest body", c.MaxMessageBytes, frameLimit)
	inRange("the number of messages in a request", c.MaxBatchMessages, maxBatchMessages)
	inRange("the number of requests in flight", c.MaxRequests, maxRequests)
	if c.MaxDelay < 0 {
		refuse("the longest delay is negative")
	}
	return errors.Join(faults...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
