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
	"github.com/canal-outbox/canal-outbox/sink/rocketmq/remoting"
)

// completion is the meaning of a failed request.
type completion struct {
	class   outbox.Class
	isolate bool // the answer may concern only one message of the batch: send its parts again
	away    bool // the broker did not answer: send nothing more to it until it answers a probe
	stale   bool // our route may be old: look it up again
	again   bool // nothing was stored, and a retry after a short pause may work
}

// classify maps the error of a request to its meaning. It is the only place that interprets errors; the library has no typed
// broker errors, so the code is parsed from "CODE: n, DESC: text".
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
		// The sink sends only to topics whose route it has just read, so the library lacks the route: its name server connection
		// broke, its list of brokers is up to 30 seconds old, or another send is just storing the topic, which takes two steps. A
		// topic that does not exist never gets here (see route.go).
		return completion{class: outbox.ClassOutage, stale: true, again: true}
	}
	// Request timeout, reset, end of file, closed connection: the request was, or may have been, written. Measured: messages of a
	// request that timed out are usually stored.
	return completion{class: outbox.ClassUnknown, away: true}
}

// classifyCode maps an answer of a broker or name server.
func classifyCode(code int, text string) completion {
	switch code {
	case remoting.Illegal:
		return completion{class: outbox.ClassPermanent, isolate: true}
	case remoting.BadParameter:
		if strings.Contains(text, "queueId") { // the topic has fewer queues now than in our route
			return completion{class: outbox.ClassOutage, stale: true}
		}
		return completion{class: outbox.ClassPermanent, isolate: true}
	case remoting.NoTopic:
		return completion{class: outbox.ClassTopic, stale: true}
	case remoting.NoPermission:
		return completion{class: permission(text)}
	case remoting.SystemBusy, remoting.FlowControl:
		return completion{class: outbox.ClassOutage, again: true}
	case remoting.Unavailable: // disk full, shutting down
		return completion{class: outbox.ClassOutage}
	case remoting.SystemError:
		if strings.Contains(text, "AclException") { // the 4.x plug-in throws an exception instead of a code
			return completion{class: permission(text)}
		}
	}
	return completion{class: outbox.ClassRefused, isolate: true}
}

// permission distinguishes an unknown or wrong credential, which stops everything, from a missing right, which stops only the topic. The
// texts are those of the broker's auth module (5.x: AuthenticationException, AuthorizationException) and of the 4.x plug-in
// (AclException).
func permission(text string) outbox.Class {
	text = strings.ToLower(text)
	for _, sign := range []string{"signature", "authentication", "is not found", "not found.", "is disabled", "username", "no acl config", "accesskey"} {
		if strings.Contains(text, sign) {
			return outbox.ClassService
		}
	}
	return outbox.ClassTopic
}

// answer extracts code and text from an error that is a server's answer.
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

// lessDurable names what a broker did not do for a stored message, and what to do; "" for a full success.
func lessDurable(status primitive.SendStatus) string {
	switch status {
	case primitive.SendFlushDiskTimeout:
		return "stored, but not flushed to the broker's disk in time (FLUSH_DISK_TIMEOUT): check that disk" + acceptIt
	case primitive.SendFlushSlaveTimeout:
		return "stored, but not copied to the replica in time (FLUSH_SLAVE_TIMEOUT): check the replica" + acceptIt
	case primitive.SendSlaveNotAvailable:
		return "stored, but the broker has no replica (SLAVE_NOT_AVAILABLE): start it" + acceptIt
	}
	return ""
}

const acceptIt = ", or accept such messages as sent with sink.rocketmq.durability: lenient"

const maxReason = 300

// reason formats the text for fail_reason and for an operator.
func reason(format string, args ...any) string {
	text := "rocketmq: " + strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}
