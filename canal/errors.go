package canal

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// ForeignSourceError reports that the server is not the recorded one and does not hold its history. Nothing was offered from it.
// An operator decides: correct the address, or accept the new source.
type ForeignSourceError struct {
	Address  string
	Recorded server.ID
	Now      server.ID
	Why      string
}

// Error implements error.
func (e *ForeignSourceError) Error() string {
	return fmt.Sprintf("the server at %s: %s", e.Address, e.Why)
}

// class is the meaning of a stream's end for the next attempt; its text is a metric label.
type class string

const (
	classLost    class = "lost"    // network, shutdown, KILL, an aborted dump: ordinary, try again
	classBusy    class = "busy"    // the server accepts no more connections
	classAccess  class = "access"  // credentials or grants: try again slowly, an operator must act
	classFenced  class = "fenced"  // another reader has our server id: back off long, or the two would end each other's streams alternately (A13)
	classGap     class = "gap"     // the log cannot be followed from here
	classStuck   class = "stuck"   // the server cannot read an event of its log: the cause may pass, or an operator removes it
	classBroken  class = "broken"  // a received event cannot be read; if this repeats it is a gap
	classHeld    class = "held"    // rows that no sweep would find cannot be published: an operator must decide
	classHandler class = "handler" // the handler or the store refused
	classOther   class = "other"   // no stream could be opened, for a reason not listed
)

func classes() []class {
	return []class{classLost, classBusy, classAccess, classFenced, classGap, classStuck, classBroken, classHeld, classHandler, classOther}
}

// handlerError marks what a Handler method returned.
type handlerError struct{ error }

// Unwrap returns the handler's error.
func (e *handlerError) Unwrap() error { return e.error }

// streamError marks the end of a stream that was open.
type streamError struct{ error }

// Unwrap returns the reason.
func (e *streamError) Unwrap() error { return e.error }

// classOf returns the meaning of a stream's end. classGap has a cause.
func classOf(err error) (class, outbox.GapCause) {
	var (
		gap     *gapError
		answer  *mysql.MyError
		handler *handlerError
		broken  *streamError
		held    *heldError
	)
	switch {
	case errors.As(err, &held):
		return classHeld, ""
	case errors.As(err, &gap):
		return classGap, gap.cause
	case errors.As(err, &handler):
		return classHandler, ""
	case errors.As(err, &answer):
		return classOfAnswer(answer.Code, answer.State, answer.Message)
	case errors.Is(err, mysql.ErrBadConn):
		return classLost, ""
	}
	meaning := server.Classify(err)
	switch {
	case meaning != server.Other:
		return classOfServer(meaning)
	case errors.As(err, &broken):
		return classBroken, "" // the library could not read an event
	}
	return classOther, ""
}

// classOfServer returns what a class of server errors means for the end of a stream.
func classOfServer(meaning server.Class) (class, outbox.GapCause) {
	switch meaning {
	case server.Gap:
		return classGap, outbox.GapPurged
	case server.Fenced:
		return classFenced, ""
	case server.Service:
		return classAccess, ""
	case server.Busy:
		return classBusy, ""
	}
	return classLost, ""
}

// erFatalReadingBinlog is the error that ends a dump which the server cannot continue; only the text says why.
const erFatalReadingBinlog = 1236

func classOfAnswer(code uint16, state, message string) (class, outbox.GapCause) {
	if code == erFatalReadingBinlog {
		return classOfFatal(strings.ToLower(message))
	}
	return classOfServer(server.ClassifyCode(code, state))
}

// fatal lists the texts of error 1236, from the servers' sources (MySQL rpl_binlog_sender.cc, MariaDB sql_repl.cc), in lower
// case.
var fatal = []struct {
	text  string
	class class
	cause outbox.GapCause
}{
	{"same server_uuid/server_id", classFenced, ""},
	{"could not find first log file", classGap, outbox.GapPurged},
	{"purged", classGap, outbox.GapPurged}, // both flavors, several sentences
	{"could not find gtid state requested", classGap, outbox.GapPurged},
	{"more gtids than the", classGap, outbox.GapShorter},
	{"which is not in the master's binlog", classGap, outbox.GapShorter},
	{"impossible position", classGap, outbox.GapShorter},
	{"position > file size", classGap, outbox.GapShorter},
}

func classOfFatal(message string) (class, outbox.GapCause) {
	for _, f := range fatal {
		if strings.Contains(message, f.text) {
			return f.class, f.cause
		}
	}
	return classStuck, "" // a corrupt log, a full disk, an event above max_allowed_packet, ...
}
