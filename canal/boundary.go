package canal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Boundaries returns the transaction boundaries nearest to a position in a binlog file: the last one at or before it and the
// first one at or after it. The position is a boundary exactly if before equals it. after is zero when the log ends before the
// next boundary; it may be the start of the next file.
//
// The server sends the file from its start. Boundaries reads the event headers and the statements of the transaction protocol
// only, so it also finds a position after an event that cannot be decoded. It changes nothing. The file up to the position goes
// over the network: give ctx a deadline. When the deadline passes, the error names the position reached. The account needs
// REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR).
func Boundaries(ctx context.Context, cfg server.Config, at outbox.Position) (before, after outbox.Position, err error) {
	start := outbox.Position{File: at.File, Offset: firstOffset}
	f := newBoundaryFinder(start, at.Offset)
	if err := lookInto(ctx, cfg, start, &f); err != nil {
		return before, after, fmt.Errorf("look for the transaction boundaries, at %s: %w", f.Position, err)
	}
	return f.before, f.after, nil
}

// lookHeartbeat is how soon the server reports that a position is after the end of its log.
const lookHeartbeat = 100 * time.Millisecond

var errFound = errors.New("the boundaries are found")

// boundaryFinder is the handler of a raw stream: it follows transactions by their event headers. The assembler decides what
// begins and ends a transaction, so the reader can resume from each boundary.
type boundaryFinder struct {
	cursor
	at       outbox.Position
	assemble *assembler

	before, after outbox.Position
}

// newBoundaryFinder searches around an offset in the file that starts at a position.
func newBoundaryFinder(start outbox.Position, offset uint64) boundaryFinder {
	return boundaryFinder{
		at: outbox.Position{File: start.File, Offset: offset}, cursor: cursor{start}, before: start,
		assemble: newAssembler(0, start, map[string][]*mapped{}),
	}
}

// HandleEvent implements replication.EventHandler.
func (f *boundaryFinder) HandleEvent(e *replication.BinlogEvent) error {
	switch e.Header.EventType {
	case replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2:
		if f.assemble.open {
			return nil
		}
		return errFound // the log ends here
	case replication.ROTATE_EVENT:
		return f.nextFile(e)
	}
	ev := eventByHeader(e)
	if ev.kind == kindGTID && f.assemble.open { // the end of the previous group is unknown
		f.boundary()
	}
	f.advance(e.Header.LogPos)
	ev.end = f.Position
	if _, err := f.assemble.feed(&ev); err != nil {
		return err
	}
	if !f.assemble.open && e.Header.LogPos != 0 {
		f.boundary()
	}
	if !f.after.IsZero() {
		return errFound
	}
	return nil
}

// nextFile takes a Rotate event. The server invents one when a stream begins; one from the log ends the file.
func (f *boundaryFinder) nextFile(e *replication.BinlogEvent) error {
	body, ok := e.Event.(*replication.RotateEvent)
	if !ok || string(body.NextLogName) == f.at.File {
		return nil
	}
	if e.Header.LogPos != 0 {
		f.advance(e.Header.LogPos)
		f.boundary()
	}
	if f.after.IsZero() {
		f.after = outbox.Position{File: string(body.NextLogName), Offset: body.Position}
	}
	return errFound
}

// boundary records the cursor as a boundary.
func (f *boundaryFinder) boundary() {
	if f.Compare(f.at) <= 0 {
		f.before = f.Position
	}
	if f.Compare(f.at) >= 0 && f.after.IsZero() {
		f.after = f.Position
	}
}

// eventByHeader returns what an event means for its transaction. It decodes only a Query and MariaDB's GTID event; a damaged one
// means nothing.
func eventByHeader(e *replication.BinlogEvent) (ev event) {
	var body []byte
	if generic, ok := e.Event.(*replication.GenericEvent); ok {
		body = generic.Data
	}
	switch e.Header.EventType {
	case replication.FORMAT_DESCRIPTION_EVENT:
		ev.kind = kindReset
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT:
		ev.kind = kindGTID
	case replication.MARIADB_GTID_EVENT:
		r := byteReader{data: body}
		r.skip(8 + 4) // sequence number, domain
		ev.kind, ev.begun = kindGTID, r.byte()&replication.BINLOG_MARIADB_FL_STANDALONE == 0
	case replication.QUERY_EVENT:
		if text, ok := queryText(body); ok {
			ev.kind, ev.xid = queryKind(text)
		}
	case replication.MARIADB_QUERY_COMPRESSED_EVENT, replication.EXECUTE_LOAD_QUERY_EVENT:
		ev.kind = kindStatement // statements of the transaction protocol are too short to be compressed
	case replication.XID_EVENT, replication.INCIDENT_EVENT:
		ev.kind = kindCommit
	case replication.XA_PREPARE_LOG_EVENT:
		ev.kind = kindPrepare
	case replication.TRANSACTION_PAYLOAD_EVENT:
		ev.kind = kindPayloadEnd
	}
	return ev
}

// queryText returns the statement in a Query event. Format: MySQL internals manual, "QUERY_EVENT".
func queryText(body []byte) (text []byte, ok bool) {
	r := byteReader{data: body}
	r.skip(4 + 4) // thread, duration in seconds
	schema := uint64(r.byte())
	r.skip(2) // error code
	status := littleEndian(r.bytes(2))
	r.skip(status + schema + 1) // status variables, schema and its end
	if r.failed {
		return nil, false
	}
	return body[r.at:], true
}
