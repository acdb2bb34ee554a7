package canal

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// decoder reduces the library's events to what the assembler needs. It keeps the log's position, the table maps and the last
// source of a GTID. Each stream has its own.
type decoder struct {
	cursor
	tables   *tableSet
	checksum bool // events end with four bytes of CRC32
	now      func() time.Time
	noticed  func(at time.Time, schema, query []byte) // called with each statement; nil: not called
	ev       event
	images   images

	sid    [16]byte // the source that name belongs to
	tag    string
	name   string
	domain uint32

	undecided bool // the statement that follows has begun or failed: another event has it again if it takes effect
}

// decode translates one event. inner means that the event is from a compressed transaction: it has no checksum, and its position
// is that of the payload.
func (d *decoder) decode(e *replication.BinlogEvent, inner bool) (*event, error) {
	if !inner {
		d.advance(e.Header.LogPos)
	}
	ev := &d.ev
	*ev = event{}
	var err error
	switch body := e.Event.(type) {
	case *replication.FormatDescriptionEvent:
		d.checksum = body.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32
		ev.kind = kindReset
	case *replication.RotateEvent:
		d.rotate(body.NextLogName, body.Position)
		ev.kind = kindReset
	case *replication.GTIDEvent:
		d.mysqlGTID(ev, body, e.Header.EventType == replication.ANONYMOUS_GTID_EVENT)
	case *replication.GtidTaggedLogEvent:
		d.mysqlGTID(ev, &body.GTIDEvent, false)
	case *replication.MariadbGTIDEvent:
		d.mariadbGTID(ev, body, e.Header.ServerID)
		d.undecided = body.IsStandalone() && undecidedAlter(body, d.body(e, inner))
	case *replication.QueryEvent:
		err = d.query(ev, body)
		if d.noticed != nil && ev.kind == kindStatement {
			d.noticed(time.Unix(int64(e.Header.Timestamp), 0), body.Schema, body.Query)
		}
	case *replication.XIDEvent:
		ev.kind = kindCommit
	case *replication.TableMapEvent:
		d.tables.observe(body, d.body(e, inner), d.Position)
	case *replication.RowsEvent:
		err = d.rows(ev, body, d.body(e, inner), e.Header.EventType == replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1)
	case *ownRows:
		err = d.own(ev, body)
	case *replication.ExecuteLoadQueryEvent:
		err = d.query(ev, &replication.QueryEvent{Query: e.RawData}) // the statement's text is part of it
		ev.inserts = true
	case *replication.TransactionPayloadEvent:
		ev.kind = kindPayloadEnd
	case *replication.GenericEvent:
		d.generic(ev, e.Header, body.Data)
	}
	if ev.kind != kindGTID && e.Header.Timestamp != 0 {
		ev.committed = time.Unix(int64(e.Header.Timestamp), 0)
	}
	ev.end = d.Position
	return ev, err
}

// body returns the event without its header and checksum.
func (d *decoder) body(e *replication.BinlogEvent, inner bool) []byte {
	end := len(e.RawData)
	if d.checksum && !inner {
		end -= replication.BinlogChecksumLength
	}
	return e.RawData[replication.EventHeaderSize:max(end, replication.EventHeaderSize)]
}

func (d *decoder) mysqlGTID(ev *event, body *replication.GTIDEvent, anonymous bool) {
	ev.kind = kindGTID
	if body.ImmediateCommitTimestamp != 0 {
		ev.committed = time.UnixMicro(int64(body.ImmediateCommitTimestamp))
	}
	if anonymous || len(body.SID) != len(d.sid) {
		return
	}
	if sid := [16]byte(body.SID); d.name == "" || d.sid != sid || d.tag != body.Tag.String() {
		d.sid, d.tag = sid, body.Tag.String()
		d.name = uuidText(sid)
		if d.tag != "" { // a separate source: tagged transactions are counted separately (A22)
			d.name += ":" + d.tag
		}
	}
	ev.gtid = outbox.GTID{Source: d.name, Seq: uint64(body.GNO)}
}

func uuidText(sid [16]byte) string {
	text := hex.EncodeToString(sid[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

func (d *decoder) mariadbGTID(ev *event, body *replication.MariadbGTIDEvent, serverID uint32) {
	if d.name == "" || d.domain != body.GTID.DomainID {
		d.domain, d.name = body.GTID.DomainID, strconv.FormatUint(uint64(body.GTID.DomainID), 10)
	}
	ev.kind = kindGTID
	ev.gtid = outbox.GTID{Source: d.name, Server: serverID, Seq: body.GTID.SequenceNumber}
	ev.begun = !body.IsStandalone()
}

// undecidedAlter reports whether a GTID event of MariaDB announces the first half of an ALTER TABLE that is logged twice
// (binlog_alter_two_phase), or its failure. Format: MariaDB log_event.cc, Gtid_log_event.
func undecidedAlter(e *replication.MariadbGTIDEvent, body []byte) bool {
	const startAlter, rollbackAlter = 2, 8
	r := byteReader{data: body}
	r.skip(8 + 4 + 1)
	if e.IsGroupCommit() {
		r.skip(8)
	}
	return r.byte()&(startAlter|rollbackAlter) != 0
}

func (d *decoder) query(ev *event, q *replication.QueryEvent) (err error) {
	ev.kind, ev.xid = queryKind(q.Query)
	if ev.kind == kindStatement {
		ev.names, err = d.tables.named(q, d.Position, !d.undecided)
		ev.inserts, ev.undo = mayInsert(q.Query), verb(q.Query) == "ROLLBACK"
	}
	return err
}

func (d *decoder) rows(ev *event, body *replication.RowsEvent, raw []byte, compressed bool) error {
	rows := ownRows{table: d.tables.find(body.Table.Schema, body.Table.Table), insert: body.Type() == replication.EnumRowsEventTypeInsert, compressed: compressed}
	if rows.table == nil {
		return nil
	}
	at, err := body.DecodeHeader(raw)
	if err != nil {
		return fmt.Errorf("rows event of %s before %s: %w", rows.table.name, d.Position, err)
	}
	rows.id, rows.columns, rows.present, rows.data = body.TableID, int(body.ColumnCount), body.ColumnBitmap1, raw[at:]
	return d.own(ev, &rows)
}

// own takes rows of a mapped table.
func (d *decoder) own(ev *event, rows *ownRows) (err error) {
	t := rows.table
	ev.table = t
	if !rows.insert {
		ev.kind = kindChange
		return nil
	}
	data := rows.data
	if rows.compressed {
		if data, err = mysql.DecompressMariadbData(data); err != nil {
			return fmt.Errorf("rows event of %s before %s: %w", t.name, d.Position, err)
		}
	}
	ev.kind = kindInsert
	d.images = images{table: t, id: rows.id, columns: rows.columns, present: rows.present, data: data, at: d.Position, received: d.now()}
	ev.rows = &d.images
	return nil
}

// generic takes the events that the library does not decode.
func (d *decoder) generic(ev *event, h *replication.EventHeader, body []byte) {
	switch h.EventType {
	case replication.INCIDENT_EVENT:
		ev.kind = kindIncident
	case replication.XA_PREPARE_LOG_EVENT:
		ev.kind, ev.final = kindPrepare, len(body) > 0 && body[0] != 0 // the body begins with the flag of ONE PHASE
	case replication.STOP_EVENT, replication.SLAVE_EVENT, replication.RAND_EVENT, replication.USER_VAR_EVENT,
		replication.APPEND_BLOCK_EVENT, replication.DELETE_FILE_EVENT, replication.IGNORABLE_EVENT,
		replication.TRANSACTION_CONTEXT_EVENT, replication.VIEW_CHANGE_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT:
	default:
		if h.Flags&replication.LOG_EVENT_IGNORABLE_F == 0 {
			ev.kind, ev.typ = kindUnknown, byte(h.EventType)
		}
	}
}
