package canal

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// schemaVersion is what the server reported about a table's columns, and the range of the log for which it is valid: from the
// position read while the columns could not change, to the next statement that names the table.
type schemaVersion struct {
	Source  server.ID       `json:"source"`
	From    outbox.Position `json:"from"`
	Columns []schemaColumn  `json:"columns"`
}

// schemaColumn is one row of information_schema.COLUMNS, in ordinal order.
type schemaColumn struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Unsigned bool   `json:"unsigned,omitempty"`
	Charset  string `json:"charset,omitempty"`
}

// schemaVersions name the columns where table maps do not (binlog_row_metadata is not FULL). Versions are stored, so that the
// rows of a restart's recovery window are readable too.
type schemaVersions struct {
	store SchemaStore // nil: none
	db    *sql.DB
	info  server.Info
	open  map[string]schemaVersion // by table
	tried map[string]time.Time     // last query to the server
}

const (
	schemaTimeout = 5 * time.Second
	schemaPause   = 50 * time.Millisecond // between two queries for one table, so that a series of DDL does not stop the stream
)

// connect prepares versions before a stream. A stored version stays valid if the server still reports the same columns; if not,
// the columns changed at an unknown position, and rows up to now are deferred.
func (s *schemaVersions) connect(ctx context.Context, tables []*mapped) error {
	s.tried = map[string]time.Time{}
	if s.info.RowMetadata == "FULL" {
		return s.forget() // the end of a version's range would not be noticed
	}
	if err := s.load(); err != nil {
		return err
	}
	for _, t := range tables {
		now, err := s.read(ctx, t.name)
		if server.Classify(err) == server.Lost {
			return err
		}
		v, ok := s.open[t.name]
		if ok && err == nil && v.Source == now.Source && slices.Equal(v.Columns, now.Columns) {
			continue
		}
		t.forget()
		delete(s.open, t.name)
		if err != nil { // dropped, or no grant: this table cannot be read, the others can
			t.refused(err)
			continue
		}
		if err := s.keep(t.name, now); err != nil {
			return err
		}
	}
	return nil
}

// load reads the store once.
func (s *schemaVersions) load() error {
	if s.open != nil {
		return nil
	}
	open := map[string]schemaVersion{}
	if s.store != nil {
		blobs, err := s.store.All()
		if err != nil {
			return &handlerError{fmt.Errorf("read the stored column versions: %w", err)}
		}
		for name, blob := range blobs {
			var v schemaVersion
			if err := json.Unmarshal(blob, &v); err != nil {
				return &handlerError{fmt.Errorf("stored column version of %s: %w", name, err)}
			}
			open[name] = v
		}
	}
	s.open = open
	return nil
}

// makePlan names the columns of a table map. Without a version it queries the server: the answer is valid for later rows only.
func (s *schemaVersions) makePlan(t *mapped, tm *replication.TableMapEvent) *columnPlan {
	if err := s.load(); err != nil {
		return &columnPlan{id: tm.TableID, fault: err.Error()}
	}
	v, ok := s.open[t.name]
	if !ok {
		s.refresh(t)
		if v, ok = s.open[t.name]; !ok {
			return &columnPlan{id: tm.TableID, fault: "the log has no column names, and the server could not be asked for them"}
		}
	}
	infos, fault := v.infos(tm)
	if fault != "" {
		return &columnPlan{id: tm.TableID, fault: fault}
	}
	p := newColumnPlan(tm, infos, t.wanted)
	p.from = v.From
	return p
}

// end closes a version at the statement that ended it, durably, because a restart may begin after that statement.
func (s *schemaVersions) end(t *mapped, at outbox.Position) error {
	v, ok := s.open[t.name]
	if !ok || v.From.Compare(at) >= 0 {
		return nil // none, or one read after the statement
	}
	delete(s.open, t.name)
	if s.store != nil {
		if err := s.store.Save(t.name, nil); err != nil {
			return &handlerError{fmt.Errorf("remove the column version of %s: %w", t.name, err)}
		}
	}
	s.refresh(t)
	return nil
}

// idle reads missing versions while the log is idle.
func (s *schemaVersions) idle(tables []*mapped) {
	if s.info.RowMetadata == "FULL" {
		return
	}
	for _, t := range tables {
		if _, ok := s.open[t.name]; !ok {
			s.refresh(t)
		}
	}
}

// forget drops all versions, because the log was read with a gap.
func (s *schemaVersions) forget() error {
	if err := s.load(); err != nil {
		return err
	}
	for name := range s.open {
		delete(s.open, name)
		if s.store == nil {
			continue
		}
		if err := s.store.Save(name, nil); err != nil {
			return &handlerError{fmt.Errorf("remove the column version of %s: %w", name, err)}
		}
	}
	return nil
}

// refresh queries the server for the current columns. If that fails the rows are deferred and the next table map tries again.
func (s *schemaVersions) refresh(t *mapped) {
	if s.db == nil || time.Since(s.tried[t.name]) < schemaPause {
		return
	}
	s.tried[t.name] = time.Now()
	v, err := s.read(context.Background(), t.name)
	if err == nil {
		err = s.keep(t.name, v)
	}
	if err != nil {
		t.refused(err)
	}
}

func (s *schemaVersions) keep(name string, v schemaVersion) error {
	if s.store != nil {
		blob, err := json.Marshal(v)
		if err == nil {
			err = s.store.Save(name, blob)
		}
		if err != nil {
			return &handlerError{fmt.Errorf("store the column version of %s: %w", name, err)}
		}
	}
	s.open[name] = v
	return nil
}
