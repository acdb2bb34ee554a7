package canal

import (
	"bytes"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"
)

// sieve has only those events parsed that mean something here. The library, in its raw mode, parses none; of a log that is mostly other
// tables' rows most events end at their header and the name in their table map. What remains goes to the library's parser, and
// what that would refuse still is refused by it.
type sieve struct {
	parser *replication.BinlogParser
	format *replication.FormatDescriptionEvent // of the log file
	maps   []tableMap                          // of the present statement

	// Events that are read into the same memory again and again; the decoder keeps nothing of them.
	xid     replication.XIDEvent
	query   replication.QueryEvent
	gtid    replication.GTIDEvent
	mariadb replication.MariadbGTIDEvent
	rows    ownRows
}

// tableMap is the table that the rows events of an id belong to.
type tableMap struct {
	id     uint64
	table  *mapped // nil: nobody's here
	parsed bool    // the parser knows it, and is to see its rows too
}

// ownRows is a rows event of one of our tables whose table map is as it was before.
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

// passed stands in place of an event that means nothing here.
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

// open puts the meaning of a raw event into it. body is the event without header and checksum, tables says whose rows are wanted.
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

// passes reports whether open will pass over an event whatever follows: header is the event's, head is the beginning of its body.
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

// mapped is what was noted of a table id; nil when no map of it was seen.
func (s *sieve) mapped(id uint64) *tableMap {
	i := slices.IndexFunc(s.maps, func(m tableMap) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return &s.maps[i]
}

// parse has the library read an event. What it makes of one refers to the event's bytes, and some of it is kept: it gets bytes of its own.
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

// mapOf notes whose rows follow and reports whether there is nothing to learn from the map: it is of nobody's table, or as it was before.
// Format: MySQL internals manual, "TABLE_MAP_EVENT".
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
	s.maps = slices.Insert(s.maps, 0, m) // the last one of an id counts
	return !m.parsed
}

// rowsKind is what the type of a rows event says.
type rowsKind struct{ insert, extra, compressed bool }

var rowsEvents = map[replication.EventType]rowsKind{
	replication.WRITE_ROWS_EVENTv0:                      {insert: true}, // of no server that is supported, but laid out as the next
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

// rowsOf is what stands in place of a rows event; nil when the parser is to see it, as it is where no table map was seen. Format: MySQL
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
		r.skip(max(littleEndian(r.bytes(2)), 2) - 2) // its length counts itself
	}
	s.rows.columns = int(min(r.length(), 1<<16))
	s.rows.present = r.bytes(uint64(s.rows.columns+7) / 8)
	if r.failed { // cut short: there are rows, and nothing is known of them
		s.rows.columns, s.rows.present = 0, nil
		return &s.rows
	}
	s.rows.data = body[r.at:]
	return &s.rows
}
