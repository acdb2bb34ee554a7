package rocketmq

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	clienterrors "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// completion is what a failed request means.
type completion struct {
	class   outbox.Class
	isolate bool // the answer may be about one message of the batch only: send its parts again
	away    bool // the broker did not answer: nothing more is sent to it before it answers a probe
	stale   bool // our route may be old: ask for it again
	again   bool // nothing was stored, and after a short pause it may work
}

// classify maps the error of a request to what it means for its messages. It is the only place where an error is read;
// the library has no typed broker errors, so the code is parsed from "CODE: n, DESC: text".
func classify(err error) completion {
	if code, text, ok := answer(err); ok {
		return classifyCode(code, text)
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return completion{class: outbox.ClassOutage, away: true} // nothing was written
	case errors.Is(err, clienterrors.ErrNotRunning), errors.Is(err, clienterrors.ErrService):
		return completion{class: outbox.ClassOutage} // after Shutdown
	case strings.Contains(err.Error(), "route info not found"):
		// Messages are only sent for topics whose route this package has just seen, so it is the library that has not
		// learned it: its name server connection broke, its list of brokers is up to 30 seconds old, or another send is just
		// filling in the topic, which it does in two steps. A topic that is truly missing never gets here (see route.go).
		return completion{class: outbox.ClassOutage, stale: true, again: true}
	}
	// Request timeout, reset, end of file, closed connection: the request was, or may have been, written. The measured
	// case is that what timed out is stored.
	return completion{class: outbox.ClassUnknown, away: true}
}

// classifyCode maps a broker's or name server's answer.
func classifyCode(code int, text string) completion {
	switch code {
	case codeIllegal:
		return completion{class: outbox.ClassPermanent, isolate: true}
	case codeBadParameter:
		if strings.Contains(text, "queueId") { // the topic has fewer queues now than our route said
			return completion{class: outbox.ClassOutage, stale: true}
		}
		return completion{class: outbox.ClassPermanent, isolate: true}
	case codeNoTopic:
		return completion{class: outbox.ClassTopic, stale: true}
	case codeNoPermission:
		return completion{class: permission(text)}
	case codeSystemBusy, codeFlowControl:
		return completion{class: outbox.ClassOutage, again: true}
	case codeUnavailable: // disk full, shutting down
		return completion{class: outbox.ClassOutage}
	case codeSystemError:
		if strings.Contains(text, "AclException") { // the 4.x plug-in throws instead of answering with a code
			return completion{class: permission(text)}
		}
	}
	return completion{class: outbox.ClassRefused, isolate: true}
}

// permission tells who is not allowed: an unknown or wrong credential stops everything, a missing right only the topic.
// The texts are those of the broker's auth module (5.x: AuthenticationException, AuthorizationException) and of the 4.x
// plug-in (AclException).
func permission(text string) outbox.Class {
	text = strings.ToLower(text)
	for _, sign := range []string{"signature", "authentication", "is not found", "not found.", "is disabled", "username", "no acl config", "accesskey"} {
		if strings.Contains(text, sign) {
			return outbox.ClassService
		}
	}
	return outbox.ClassTopic
}

// answer takes code and text out of an error that is a server's answer.
func answer(err error) (code int, text string, ok bool) {
	if err == nil {
		return 0, "", false
	}
	rest, found := strings.CutPrefix(err.Error(), "CODE: ")
	if !found {
		return 0, "", false
	}
	number, text, found := strings.Cut(rest, ",")
	code, bad := strconv.Atoi(strings.TrimSpace(number))
	return code, strings.TrimPrefix(text, " DESC: "), found && bad == nil
}

// lessDurable names what a broker did not do for a message that it stored, and what to do; "" for a full success.
func lessDurable(status primitive.SendStatus) string {
	switch status {
	case primitive.SendFlushDiskTimeout:
		return "stored, but not flushed to the broker's disk in time (FLUSH_DISK_TIMEOUT): look at that disk" + acceptIt
	case primitive.SendFlushSlaveTimeout:
		return "stored, but not copied to the replica in time (FLUSH_SLAVE_TIMEOUT): look at the replica" + acceptIt
	case primitive.SendSlaveNotAvailable:
		return "stored, but the broker has no replica (SLAVE_NOT_AVAILABLE): start it" + acceptIt
	}
	return ""
}

const acceptIt = ", or accept such messages as sent with sink.rocketmq.durability: lenient"

const maxReason = 300

// reason is the text for fail_reason and for an operator.
func reason(format string, args ...any) string {
	text := "rocketmq: " + strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}
