// Package sink is the contract between the relay and a broker, and nothing else: the pipeline hands batches over, a sink
// answers each message once with an outcome. Every sink passes the suite in sinktest.
//
// Guarantee of every implementation: exactly one Result for each message of each Send, in any order; messages of one
// sharding key and topic are stored in the order they were sent (while each of them succeeds at first try); Send neither
// blocks nor holds messages back in wait for more. The package itself owns no goroutine; implementations own theirs and
// end them in Close.
//
// An outcome names its scope, truly: how far what was met reaches.
//   - ClassNone, ClassPermanent and ClassRefused are answers about the message: ScopeMessage.
//   - ClassTopic is ScopeTopic, ClassService is ScopeCluster.
//   - ClassOutage is ScopePartition while other brokers or partitions are in use, ScopeTopic while only this topic cannot be
//     sent to, else ScopeCluster.
//   - ClassUnknown with ScopeMessage: the broker answers others and not this message, though it was sent alone. It is the
//     message's own doing; whoever sends it again sends it into the same silence. With any other scope the silence, or what the
//     broker did not keep its promise of, is the broker's, and no message is to blame.
package sink

import (
	"context"
	"errors"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Result is the outcome of one message.
type Result struct {
	Message *outbox.Message
	outbox.Outcome
}

// Sink publishes messages. All methods may be called from several goroutines.
type Sink interface {
	// Send takes a batch over and returns at once. done is called from the sink's goroutines, one or more times, with
	// slices it may keep, until each message has had its result; it does not block. The batch slice belongs to the sink
	// afterwards; the messages are read-only. What the broker would refuse for good (size, topic name, properties) is
	// answered ClassPermanent without a network round trip. After Close every message is answered ClassOutage.
	// The number and bytes of messages without a result are bounded by the caller.
	Send(batch []*outbox.Message, done func([]Result))

	// Probe asks the broker, without carrying a message, whether it would take one: nil means try again. It is what an open
	// breaker calls, and a start. A broker that answers questions and leaves sends without an answer is not there: while sends
	// stay unanswered that the sink still keeps, Probe says so. Only the answer to a send proves that sends are answered, so a
	// nil is leave to try one message and no more.
	Probe(ctx context.Context) error

	// Topics checks that each topic exists and may be written; one error per faulty topic, used by doctor and at start.
	// An error in the second place means that the broker could not be asked.
	Topics(ctx context.Context, topics []string) (map[string]error, error)

	// Close stops intake, waits for the results of what was sent until the context ends, and releases every resource. What is left
	// is answered ClassOutage where it is certain that it was never sent, else ClassUnknown. It may be called once.
	Close(ctx context.Context) error
}

// Delayer is a sink whose broker can deliver a message later: Message.Later.
type Delayer interface {
	// LongestDelay is the longest delay that the broker takes; 0 when it takes none.
	LongestDelay() time.Duration
}

// Limits are the caller's own bounds: on what it hands over without having a result, and on when that may leave the process.
type Limits struct {
	Messages, Bytes int
	// May is asked before each write that may carry messages, as near to the socket as possible; nil: always. While it is false a sink
	// sends nothing and answers ClassOutage, or keeps what it holds until it may. It does not block.
	May func() bool
}

// ErrMayNot is why a sink has not sent: Limits.May.
var ErrMayNot = errors.New("this relay may not publish at this moment: its lease was not renewed in time, or another relay has it")

// Newest is what the newest rows of the tables tell a check before the first message.
type Newest struct {
	Topics  []string         // that exist and may be written
	Largest map[string]int64 // the largest body of each topic, in bytes
}

// TopicNameError says that a topic's name can never be used at this broker. Topics returns it for such a name.
type TopicNameError struct{ Why string }

// Error implements error.
func (e *TopicNameError) Error() string { return e.Why }
