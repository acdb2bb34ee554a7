package canal

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxFollowed bounds the tables that are followed because they may become mapped ones: the shadow tables of online schema changes,
// whose names contain that of the table (_t_gho, _t_new), and copies of a followed table.
const maxFollowed = 32

// follow applies a statement that ends at a position to the versions of the tables that it changes. What is not understood makes
// the columns of the tables that it names unknown.
func (s *schemaVersions) follow(q *replication.QueryEvent, at outbox.Position) error {
	if err := s.load(); err != nil {
		return err
	}
	if !s.mentions(q.Query) {
		return nil
	}
	now := map[string]definition.State{}
	changes, err := definition.Read(s.statement(q))
	if err == nil && q.ErrorCode != 0 {
		err = errors.New("it failed, and may have changed some tables")
	}
	if err != nil {
		for name := range s.all() {
			if _, bare, _ := strings.Cut(name, "."); names(q.Query, bare) {
				now[name] = definition.State{}
			}
		}
	}
	for _, c := range changes {
		if err == nil {
			s.apply(c, at, now)
		}
	}
	return s.record(now, at)
}

// apply applies a change to the states after the statement. An error is a state that is not known.
func (s *schemaVersions) apply(c definition.Change, at outbox.Position, now map[string]definition.State) {
	if strings.HasSuffix(c.Table, ".") { // a database
		for name := range s.all() {
			if strings.HasPrefix(name, c.Table) {
				now[name] = definition.State{Known: true}
			}
		}
		return
	}
	source, target := c.Source()
	if all := s.all(); !all[c.Table] && !all[source] && !all[target] && !s.candidate(target) {
		return
	}
	state := func(name string) definition.State {
		if state, ok := now[name]; ok {
			return state
		}
		before := outbox.Position{File: at.File, Offset: max(at.Offset, 1) - 1}
		v := s.at(name, before)
		return v.state()
	}
	_ = c.Apply(state, func(name string, state definition.State) { now[name] = state }) // its error is in the state
}

// record stores the states after a statement and compares those of mapped tables with what the server reports.
func (s *schemaVersions) record(now map[string]definition.State, at outbox.Position) error {
	mapped := map[string]*mapped{}
	for _, t := range s.mapped {
		mapped[s.key(t.name)] = t
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		state := now[name]
		if mapped[name] == nil && state.Table == nil { // not followed any more; if it comes back it is read
			if err := s.save(name, nil); err != nil {
				return err
			}
			continue
		}
		if err := s.put(name, schemaVersion{From: at, Table: state.Table, Absent: state.Known && state.Table == nil}); err != nil {
			return err
		}
	}
	if err := s.bound(mapped); err != nil {
		return err
	}
	for name := range now {
		if t := mapped[name]; t != nil && s.db != nil {
			t.forget()
			if err := s.check(s.ctx, t, at, true); err != nil && s.ctx.Err() == nil {
				t.refused(err)
			}
		}
	}
	return nil
}

// bound drops the followed table that was changed the longest time ago.
func (s *schemaVersions) bound(mapped map[string]*mapped) error {
	oldest, others := "", 0
	for name, list := range s.known {
		if mapped[name] != nil {
			continue
		}
		others++
		if last := list[len(list)-1].From; oldest == "" || last.Compare(s.known[oldest][len(s.known[oldest])-1].From) < 0 {
			oldest = name
		}
	}
	if others <= maxFollowed {
		return nil
	}
	return s.save(oldest, nil)
}

// all are the tables that are followed.
func (s *schemaVersions) all() map[string]bool {
	out := map[string]bool{}
	for _, t := range s.mapped {
		out[s.key(t.name)] = true
	}
	for name := range s.known {
		out[name] = true
	}
	return out
}

// candidate reports whether a table's name contains that of a mapped one in the same schema.
func (s *schemaVersions) candidate(name string) bool {
	schema, bare, _ := strings.Cut(name, ".")
	for _, t := range s.mapped {
		if in, _, _ := strings.Cut(s.key(t.name), "."); in == schema && contains([]byte(bare), t.table) {
			return true
		}
	}
	return false
}

// mentions reports whether a statement may be about a followed table: its text contains the name of one, or of the database of a
// mapped one.
func (s *schemaVersions) mentions(query []byte) bool {
	for _, t := range s.mapped {
		schema, _, _ := strings.Cut(t.name, ".")
		if contains(query, t.table) || verb(query) == "DROP" && contains(query, schema) {
			return true
		}
	}
	for name := range s.known {
		if _, bare, _ := strings.Cut(name, "."); contains(query, bare) {
			return true
		}
	}
	return false
}

// contains looks for a name in any letter case.
func contains(query []byte, name string) bool {
	for i := 0; i+len(name) <= len(query); i++ {
		if query[i]|0x20 == name[0]|0x20 && bytes.EqualFold(query[i:i+len(name)], []byte(name)) {
			return true
		}
	}
	return false
}

// statement is a Query event as the definitions need it.
func (s *schemaVersions) statement(q *replication.QueryEvent) definition.Statement {
	mode, client := session(q.StatusVars)
	return definition.Statement{
		SQL: q.Query, Schema: string(q.Schema), ANSIQuotes: mode&sqlANSIQuotes != 0, NoBackslashEscapes: mode&sqlNoBackslashEscapes != 0,
		Charset: clientCharset(client), Server: s.dialect(),
	}
}

func (s *schemaVersions) dialect() definition.Server {
	return definition.Server{MariaDB: s.info.Flavor == outbox.MariaDB, Version: s.info.Major*10000 + s.info.Minor*100 + s.info.Patch, Fold: s.info.CaseFolding != 0}
}

// Bits of sql_mode, in both servers.
const (
	sqlANSIQuotes         = 1 << 2
	sqlNoBackslashEscapes = 1 << 20
)

// session reads sql_mode and the collation of character_set_client from a Query event's status variables. They come before those
// of unknown length. Format: MySQL statement_events.h, Query_event::Query_event_status_vars.
func session(status []byte) (mode uint64, client uint64) {
	client = 33
	for r := (byteReader{data: status}); r.more(); {
		switch r.byte() {
		case 0: // flags2
			r.skip(4)
		case 1:
			mode = littleEndian(r.bytes(8))
		case 2: // catalog, with a zero byte
			r.skip(uint64(r.byte()) + 1)
		case 3: // auto_increment
			r.skip(4)
		case 4:
			client = littleEndian(r.bytes(2))
			r.skip(4)
		case 5, 6: // time zone, catalog
			r.skip(uint64(r.byte()))
		case 7, 8: // lc_time_names, collation_database
			r.skip(2)
		default:
			return mode, client
		}
	}
	return mode, client
}

// clientCharset maps the collations that character_set_client can have.
func clientCharset(collation uint64) definition.Charset {
	switch {
	case collation == 1, collation == 84, collation == 28, collation == 87, collation >= 248 && collation <= 250: // big5, gbk, gb18030
		return definition.Wide
	case collation == 13, collation == 88, collation == 95, collation == 96: // sjis, cp932
		return definition.Unread
	case slices.Contains([]string{"utf8mb4", "utf8mb3", "ascii"}, charsetOf(collation)):
		return definition.UTF8
	}
	return definition.Narrow
}
