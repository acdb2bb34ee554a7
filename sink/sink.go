// Package sink is the contract between the relay and a broker: the pipeline sends batches, a sink reports one outcome for each
// message. Every sink passes the suite in sinktest.
//
// Guarantee of every implementation: exactly one Result for each message of each Send, in any order; messages of one sharding key
// and topic are stored in the order of sending (while each succeeds at the first try); Send neither blocks nor holds messages
// back to wait for more. The package itself owns no goroutine; implementations own theirs and end them in Close.
//
// An outcome names its scope: how far the cause reaches.
// - ClassNone, ClassPermanent and ClassRefused are answers about the message: ScopeMessage.
// - ClassTopic is ScopeTopic, ClassService is ScopeCluster.
// - ClassOutage is ScopePartition while other brokers or partitions are in use, ScopeTopic while only this topic is unavailable,
// else ScopeCluster.
// - ClassUnknown with ScopeMessage: the broker answers other messages but not this one, though it was sent alone. The message is
// the cause, and sending it again ends the same way. With any other scope the broker is the cause, by its silence or by a broken
// promise, and no message is.
package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	// Send takes a batch and returns at once. The sink's goroutines call done, one or more times, with slices that done may keep,
	// until each message has its result; done must not block. The sink owns the batch slice afterwards; the messages are
	// read-only. A message that the broker would refuse for good (size, topic name, properties) gets ClassPermanent without a
	// network round trip. After Close every message gets ClassOutage. The caller bounds the number and bytes of messages without
	// a result.
	Send(batch []*outbox.Message, done func([]Result))

	// Probe checks, without a message, whether the broker would accept one: nil means try again. An open breaker calls it, and
	// the start does. While sends that the sink still holds stay unanswered, Probe returns an error even if the broker answers
	// other requests. Only an answer to a send proves that sends are answered, so nil permits one message as a trial.
	Probe(ctx context.Context) error

	// Topics checks that each topic exists and can be written; one error per faulty topic. doctor and the start use it. The
	// second error means that the broker could not be reached.
	Topics(ctx context.Context, topics []string) (map[string]error, error)

	// Close stops intake, waits for the results of what was sent until the context ends, and releases every resource. What is left
	// is answered ClassOutage where it is certain that it was never sent, else ClassUnknown. It may be called once.
	Close(ctx context.Context) error
}

// Delayer is a sink whose broker can deliver a message later: Message.Later.
type Delayer interface {
	// LongestDelay is the longest delay that the broker accepts; 0 for none.
	LongestDelay() time.Duration
}

// Limits are the caller's own limits: on messages without a result, and on when messages may leave the process.
type Limits struct {
	Messages, Bytes int
	// May is called before each write that may carry messages, as near to the socket as possible; nil: always true. While it
	// returns false a sink sends nothing and reports ClassOutage, or keeps its messages until it returns true. It does not block.
	May func() bool
}

// ErrMayNot reports that Limits.May returned false.
var ErrMayNot = errors.New("this relay may not publish now: its lease was not renewed in time, or another relay has it")

// Newest is what a check before the first message takes from the newest rows of the tables.
type Newest struct {
	Topics  []string         // that exist and can be written
	Largest map[string]int64 // the largest body of each topic, in bytes
	// ReadBack says that the relay is to read the topics after a kill.
	ReadBack bool
}

// Results gives messages one outcome.
func Results(messages []*outbox.Message, o outbox.Outcome) []Result {
	out := make([]Result, len(messages))
	for i, m := range messages {
		out[i] = Result{m, o}
	}
	return out
}

// Closed is the outcome of messages that are sent after Close.
var Closed = outbox.Outcome{Class: outbox.ClassOutage, Scope: outbox.ScopeCluster, Reason: "the sink is closed"}

// NameFault returns why a broker cannot have a topic of this name, "" when it can: a name has one to longest ASCII letters, digits
// and characters of punctuation.
func NameFault(name, punctuation string, longest int) string {
	if name == "" || len(name) > longest {
		return fmt.Sprintf("the topic name has %d characters, allowed are 1 to %d", len(name), longest)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(punctuation, c) < 0 {
			return fmt.Sprintf("the topic name %q has other characters than letters, digits and %s", name, strings.Join(strings.Split(punctuation, ""), " "))
		}
	}
	return ""
}

// TopicNameError reports that this broker cannot have a topic of that name. Topics returns it for such a name.
type TopicNameError struct{ Why string }

// Error implements error.
func (e *TopicNameError) Error() string { return e.Why }
