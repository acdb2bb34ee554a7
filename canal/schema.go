package canal

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// schemaVersion is the definition of a table from a position on, up to that of the next version. It was read from the server, or
// follows from the version before it and a statement that ends at the position.
type schemaVersion struct {
	Source server.ID         `json:"source"`
	From   outbox.Position   `json:"from"`
	Table  *definition.Table `json:"table,omitempty"` // nil: not known, or there is no table
	Absent bool              `json:"absent,omitempty"`
}

func (v *schemaVersion) known() bool { return v.Table != nil || v.Absent }

func (v *schemaVersion) state() definition.State {
	return definition.State{Table: v.Table, Known: v.known()}
}

// schemaVersions name the columns where table maps do not (binlog_row_metadata is not FULL). Versions are stored, so that a
// restart reads its recovery window with them.
type schemaVersions struct {
	ctx    context.Context // of the stream
	store  SchemaStore     // nil: none
	db     *sql.DB         // nil: the server is not asked
	info   server.Info
	mapped []*mapped
	known  map[string][]schemaVersion // by key of the table, in the order of From; also of tables that may become mapped ones
	tried  map[string]time.Time       // last query to the server
	agreed map[string]outbox.Position // the versions up to here lead to what the server reported
	// ahead follows a copy of the versions through a part of the log; nil: not possible.
	ahead func(ctx context.Context, copied *schemaVersions, from, to outbox.Position) error
}

const (
	schemaTimeout = 5 * time.Second
	schemaPause   = 50 * time.Millisecond // between two queries for one table, so that a series of DDL does not stop the stream
	// differsPause is that pause while rows do not fit to the version that is valid for them.
	differsPause = 10 * time.Second
	// maxVersions bounds the versions of one table: a restart begins behind the oldest, unless very many DDL statements are in its
	// recovery window.
	maxVersions = 32
)

// key is the name of a table as versions have it.
func (s *schemaVersions) key(name string) string {
	if s.info.CaseFolding != 0 {
		return strings.ToLower(name)
	}
	return name
}

// follows reports whether definitions are needed.
func (s *schemaVersions) follows() bool { return s.info.RowMetadata != "FULL" }

// connect prepares versions for a stream that begins at from. failed is the checkpoint on another server with the same history,
// where it ended; zero: the server is the same.
func (s *schemaVersions) connect(ctx context.Context, tables []*mapped, from, failed outbox.Position) error {
	s.ctx, s.mapped = ctx, tables
	s.tried, s.agreed = map[string]time.Time{}, map[string]outbox.Position{}
	if !s.follows() {
		return s.forget() // the end of a version's range would not be noticed
	}
	if err := s.load(); err != nil {
		return err
	}
	if err := s.move(failed); err != nil {
		return err
	}
	for _, t := range tables {
		t.forget()
		err := s.check(ctx, t, from, true)
		if server.Classify(err) == server.Lost || ctx.Err() != nil {
			return err
		}
		if err != nil { // dropped, or no grant: this table cannot be read, the others can
			t.refused(err)
		}
	}
	return nil
}

// load reads the store once.
func (s *schemaVersions) load() error {
	if s.known != nil {
		return nil
	}
	known := map[string][]schemaVersion{}
	if s.store != nil {
		blobs, err := s.store.All()
		if err != nil {
			return &handlerError{fmt.Errorf("read the stored column versions: %w", err)}
		}
		for name, blob := range blobs {
			var list []schemaVersion
			if bytes.HasPrefix(blob, []byte("{")) { // of a build that kept one version
				continue
			}
			if err := json.Unmarshal(blob, &list); err != nil {
				return &handlerError{fmt.Errorf("stored column versions of %s: %w", name, err)}
			}
			known[name] = list
		}
	}
	s.known = known
	return nil
}

// move drops the versions of another server, whose positions mean nothing here. After a failover the versions at the checkpoint
// hold from the start of the stream, which begins there.
func (s *schemaVersions) move(failed outbox.Position) error {
	for name, list := range s.known {
		if !slices.ContainsFunc(list, func(v schemaVersion) bool { return v.Source != s.info.ID }) {
			continue
		}
		var kept []schemaVersion
		if v := s.at(name, failed); failed.File != "" && v.known() {
			kept = []schemaVersion{{Source: s.info.ID, Table: v.Table, Absent: v.Absent}}
		}
		if err := s.save(name, kept); err != nil {
			return err
		}
	}
	return nil
}

// at returns the version that is valid for rows at a position; an empty one when none is known.
func (s *schemaVersions) at(name string, pos outbox.Position) (v schemaVersion) {
	for _, next := range s.known[name] {
		if next.From.Compare(pos) > 0 {
			break
		}
		v = next
	}
	return v
}

// makePlan names the columns of a table map. Without a version it queries the server: the answer is valid for later rows only.
func (s *schemaVersions) makePlan(t *mapped, tm *replication.TableMapEvent, at outbox.Position) *columnPlan {
	if err := s.load(); err != nil {
		return &columnPlan{id: tm.TableID, fault: err.Error()}
	}
	name := s.key(t.name)
	v := s.at(name, at)
	if v.Table == nil {
		s.refresh(t, at, schemaPause)
		if v = s.at(name, at); v.Table == nil {
			v = s.after(name, at)
		}
	}
	if v.Table == nil {
		return &columnPlan{id: tm.TableID, fault: "the log has no column names, and the server could not be asked for them"}
	}
	infos, fault := namedColumns(v.Table, tm)
	if fault != "" {
		if v.From.Compare(at) <= 0 {
			s.differs(t, at)
		}
		return &columnPlan{id: tm.TableID, fault: fault}
	}
	p := newColumnPlan(tm, infos, t.wanted)
	p.from = v.From
	return p
}

// after returns the first known definition that becomes valid after a position.
func (s *schemaVersions) after(name string, pos outbox.Position) schemaVersion {
	for _, v := range s.known[name] {
		if v.Table != nil && v.From.Compare(pos) > 0 {
			return v
		}
	}
	return schemaVersion{}
}

// idle reads missing versions while the log is idle.
func (s *schemaVersions) idle(tables []*mapped, at outbox.Position) {
	if !s.follows() {
		return
	}
	for _, t := range tables {
		if name := s.key(t.name); s.at(name, at).Table == nil && s.after(name, at).Table == nil {
			s.refresh(t, at, schemaPause)
		}
	}
}

// forget drops all versions, because the log was read with a gap.
func (s *schemaVersions) forget() error {
	if err := s.load(); err != nil {
		return err
	}
	for name := range s.known {
		if err := s.save(name, nil); err != nil {
			return err
		}
	}
	return nil
}

// put adds a version. One that begins at the same position is kept: this part of the log was read before.
func (s *schemaVersions) put(name string, v schemaVersion) error {
	list := s.known[name]
	i, found := slices.BinarySearchFunc(list, v.From, func(v schemaVersion, at outbox.Position) int { return v.From.Compare(at) })
	if found {
		return nil
	}
	if before := s.at(name, v.From); before.Table != nil && v.Table != nil && sameDefinition(before.Table, v.Table) {
		return nil
	}
	v.Source = s.info.ID
	list = slices.Insert(slices.Clone(list), i, v)
	return s.save(name, list[max(0, len(list)-maxVersions):])
}

// doubt ends a version: from here the table's columns are not known.
func (s *schemaVersions) doubt(name string, at outbox.Position) error {
	list := slices.DeleteFunc(slices.Clone(s.known[name]), func(v schemaVersion) bool { return v.From.Compare(at) == 0 })
	if err := s.save(name, list); err != nil {
		return err
	}
	return s.put(name, schemaVersion{From: at})
}

// save stores the versions of a table, durably, because a restart may begin behind the statement that ended one.
func (s *schemaVersions) save(name string, list []schemaVersion) error {
	var blob []byte
	var err error
	if len(list) > 0 {
		s.known[name] = list
		blob, err = json.Marshal(list)
	} else {
		delete(s.known, name)
	}
	if err == nil && s.store != nil {
		err = s.store.Save(name, blob)
	}
	if err != nil {
		return &handlerError{fmt.Errorf("store the column versions of %s: %w", name, err)}
	}
	return nil
}
