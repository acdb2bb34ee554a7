package rocketmq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// firstWithTimers is the number of 5.0.0-SNAPSHOT in org.apache.rocketmq.common.MQVersion: older brokers do not support
// TIMER_DELIVER_MS.
const firstWithTimers = 412

// readBackLimit is the time in which a topic must be readable, and a broker must answer.
const readBackLimit = 5 * time.Second

// Check reads the brokers' releases when they must hold delayed messages, and tries to read the topics that are to be read back. It
// publishes nothing.
func (s *Section) Check(ctx context.Context, opened sink.Sink, newest sink.Newest) (findings []server.Finding) {
	q, is := opened.(*Sink)
	if !is {
		return nil
	}
	if newest.ReadBack {
		findings = s.checkReadBack(ctx, q, newest.Topics)
	}
	if s.NativeDelay {
		findings = append(findings, s.checkTimers(ctx, q)...)
	}
	return findings
}

// checkReadBack reports the topics that a start after a kill cannot read, and the brokers that do not say what they have flushed and copied.
func (s *Section) checkReadBack(ctx context.Context, q *Sink, topics []string) (findings []server.Finding) {
	warn := func(subject string, err error) {
		findings = append(findings, server.Finding{
			Severity: server.Warning, Subject: subject,
			What: fmt.Sprintf("read_back is enabled and cannot work here: after a kill some messages are sent again: %v", err),
			Fix: fmt.Sprintf("let the account read (SUB) the topics and the group %s, and ask the brokers for their configuration and state, or set read_back.enabled to false",
				s.Group),
		})
	}
	limited := func(check func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, readBackLimit)
		defer cancel()
		return check(ctx)
	}
	brokers := map[string]string{}
	for _, topic := range topics {
		if err := limited(func(ctx context.Context) error { return q.unreadable(ctx, topic, brokers) }); err != nil {
			warn("topic "+topic, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(brokers)) {
		if err := limited(func(ctx context.Context) error { return q.brokerCommitted(ctx, brokers[name]) }); err != nil {
			warn("broker "+name, err)
		}
	}
	return findings
}

// checkTimers reports brokers that deliver delayed messages at once.
func (s *Section) checkTimers(ctx context.Context, q *Sink) []server.Finding {
	const subject = "sink.rocketmq.native_delay"
	brokers, err := q.remote.Masters(ctx)
	if err != nil {
		return []server.Finding{{Severity: server.Warning, Subject: subject, What: fmt.Sprintf("the brokers could not be asked for their release: %v", err)}}
	}
	var findings []server.Finding
	add := func(severity server.Severity, fix, what string, args ...any) {
		findings = append(findings, server.Finding{Severity: severity, Subject: subject, Fix: fix, What: fmt.Sprintf(what, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(brokers)) {
		release, err := q.remote.Release(ctx, askLimit, brokers[name], q.instance+"-check", q.group)
		switch {
		case err != nil:
			add(server.Warning, "", "broker %s at %s could not be asked for its release: %v", name, brokers[name], err)
		case release == 0: // a proxy, or another program that does not report its release
			add(server.Warning, "make sure that it is RocketMQ 5.0 or newer", "broker %s at %s does not report its release", name, brokers[name])
		case release < firstWithTimers:
			add(server.Fault, "set sink.rocketmq.native_delay to false: the relay then keeps delayed rows itself, to 100 ms",
				"broker %s at %s is older than RocketMQ 5.0 (release number %d): it delivers delayed messages at once", name, brokers[name], release)
		default:
			add(server.OK, "", "broker %s has timers (release %d)", name, release)
		}
	}
	return findings
}
