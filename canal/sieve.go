package canal

import (
	"bytes"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"
)

// sieve has the library parse only the events that are used here. The library, in its raw mode, parses none. Most events of a log
// with many other tables are decided by their header and the name in their table map. The library's parser reads the others, and
// refuses what it would refuse without a sieve.
type sieve struct {
	parser *replication.BinlogParser
	format *replication.FormatDescriptionEvent // of the current log file
	maps   []tableMap                          // of the current statement

	// Events that are read into the same memory repeatedly; the decoder keeps nothing of them.
	xid     replication.XIDEvent
	query   replication.QueryEvent
	gtid    replication.GTIDEvent
	mariadb replication.MariadbGTIDEvent
	rows    ownRows
}

// tableMap is the table of a table id in rows events.
type tableMap struct {
	id     uint64
	table  *mapped // nil: not mapped
	parsed bool    // the parser has read the map, and must read its rows too
}

// ownRows is a rows event of a mapped table whose table map is the same as before.
type ownRows struct {
	passed
	table      *mapped
	insert     bool
	compressed bool
	id         uint64
	columns    int
	present    []byte // bitmap
	data       []byte // images
}

// passed replaces an event that is not used here.
type passed struct{ *replication.GenericEvent }

func newSieve(flavor string) *sieve {
	s := &sieve{parser: replication.NewBinlogParser()}
	s.parser.SetFlavor(flavor)
	s.parser.SetPayloadDecoderConcurrency(1)
	// Rows are decoded by the plan of their table, and only inserts of mapped tables.
	s.parser.SetRowsEventDecodeFunc(headerOnly)
	s.parser.SetTableMapOptionalMetaDecodeFunc(noMetadata)
	return s
}

func headerOnly(e *replication.RowsEvent, data []byte) error {
	_, err := e.DecodeHeader(data)
	return err
}

func noMetadata([]byte) error { return nil }

// open interprets a raw event in place. body is the event without header and checksum; tables says whose rows are needed.
func (s *sieve) open(e *replication.BinlogEvent, body []byte, tables *tableSet) error {
	if s.format == nil {
		return s.parse(e)
	}
	switch e.Header.EventType {
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		s.maps = s.maps[:0]
	}
	switch e.Header.EventType {
	case replication.XID_EVENT:
		e.Event = &s.xid
		return nil
	case replication.QUERY_EVENT:
		e.Event, s.query = &s.query, replication.QueryEvent{}
		return s.query.Decode(body)
	case replication.GTID_EVENT, replication.ANONYMOUS_GTID_EVENT:
		e.Event, s.gtid = &s.gtid, replication.GTIDEvent{}
		return s.gtid.Decode(body)
	case replication.MARIADB_GTID_EVENT:
		e.Event, s.mariadb = &s.mariadb, replication.MariadbGTIDEvent{}
		return s.mariadb.Decode(body)
	case replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.ROWS_QUERY_EVENT:
		e.Event = passed{}
		return nil
	case replication.TABLE_MAP_EVENT:
		if s.mapOf(body, tables) {
			e.Event = passed{}
			return nil
		}
	default:
		if kind, ok := rowsEvents[e.Header.EventType]; ok {
			if known := s.rowsOf(body, kind); known != nil {
				e.Event = known
				return nil
			}
		}
	}
	return s.parse(e)
}

// passes reports whether open will skip an event whatever follows: header is the event's, head is the start of its body.
func (s *sieve) passes(header, head []byte) bool {
	if s.format == nil {
		return false
	}
	switch typ := replication.EventType(header[4]); typ {
	case replication.MARIADB_ANNOTATE_ROWS_EVENT, replication.ROWS_QUERY_EVENT:
		return true
	default:
		if _, ok := rowsEvents[typ]; !ok {
			return false
		}
		m := s.mapped(littleEndian(head[:6]))
		return m != nil && m.table == nil
	}
}

// mapped returns the recorded map of a table id; nil when there is none.
func (s *sieve) mapped(id uint64) *tableMap {
	i := slices.IndexFunc(s.maps, func(m tableMap) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return &s.maps[i]
}

// parse has the library read an event. The result refers to the event's bytes, and part of it is kept: so the library gets a
// copy.
func (s *sieve) parse(e *replication.BinlogEvent) error {
	e.RawData = bytes.Clone(e.RawData)
	parsed, err := s.parser.Parse(e.RawData)
	if err != nil {
		return err
	}
	if format, ok := parsed.Event.(*replication.FormatDescriptionEvent); ok {
		s.format = format
	}
	e.Event = parsed.Event
	return nil
}

// mapOf records the table of the rows that follow, and reports whether the map needs no decoding: the table is not mapped, or the
// map is the same as before. Format: MySQL internals manual, "TABLE_MAP_EVENT".
func (s *sieve) mapOf(body []byte, tables *tableSet) (known bool) {
	if s.format.EventTypeHeaderLengths[replication.TABLE_MAP_EVENT-1] != 8 {
		return false
	}
	r := byteReader{data: body}
	m := tableMap{id: littleEndian(r.bytes(6))}
	r.skip(2)
	schema := r.bytes(uint64(r.byte()))
	r.skip(1)
	name := r.bytes(uint64(r.byte()))
	if r.failed {
		return false
	}
	m.table = tables.find(schema, name)
	m.parsed = m.table != nil && !bytes.Equal(m.table.body, body)
	s.maps = slices.Insert(s.maps, 0, m) // the last map of an id is valid
	return !m.parsed
}

// rowsKind describes a type of rows event.
type rowsKind struct{ insert, extra, compressed bool }

var rowsEvents = map[replication.EventType]rowsKind{
	replication.WRITE_ROWS_EVENTv0:                      {insert: true}, // not written by any supported server; same layout as the next
	replication.UPDATE_ROWS_EVENTv0:                     {},
	replication.DELETE_ROWS_EVENTv0:                     {},
	replication.WRITE_ROWS_EVENTv1:                      {insert: true},
	replication.UPDATE_ROWS_EVENTv1:                     {},
	replication.DELETE_ROWS_EVENTv1:                     {},
	replication.WRITE_ROWS_EVENTv2:                      {insert: true, extra: true},
	replication.UPDATE_ROWS_EVENTv2:                     {},
	replication.DELETE_ROWS_EVENTv2:                     {},
	replication.PARTIAL_UPDATE_ROWS_EVENT:               {},
	replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1:  {insert: true, compressed: true},
	replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1: {},
	replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1: {},
}

// rowsOf returns what replaces a rows event; nil when the parser must read it, for example without a table map. Format: MySQL
// internals manual, "ROWS_EVENT".
func (s *sieve) rowsOf(body []byte, kind rowsKind) replication.Event {
	r := byteReader{data: body}
	id, flags := littleEndian(r.bytes(6)), littleEndian(r.bytes(2))
	known := s.mapped(id)
	if r.failed || known == nil {
		return nil
	}
	m := *known
	if flags&uint64(replication.RowsEventStmtEndFlag) != 0 {
		s.maps = s.maps[:0]
	}
	switch {
	case m.table == nil:
		return passed{}
	case m.parsed:
		return nil
	}
	s.rows = ownRows{table: m.table, insert: kind.insert, compressed: kind.compressed, id: id}
	if !kind.insert {
		return &s.rows
	}
	if kind.extra {
		r.skip(max(littleEndian(r.bytes(2)), 2) - 2) // the length includes itself
	}
	s.rows.columns = int(min(r.length(), 1<<16))
	s.rows.present = r.bytes(uint64(s.rows.columns+7) / 8)
	if r.failed { // cut short: there are rows, but they are unknown
		s.rows.columns, s.rows.present = 0, nil
		return &s.rows
	}
	s.rows.data = body[r.at:]
	return &s.rows
}
