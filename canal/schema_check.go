package canal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/canal/definition"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// check compares the version at a position with what the server reports, which is valid at a later position. Where they differ
// the statements between the two decide: if the version and they lead to what the server reports, the version is right. Without a
// version, what the server reports holds from the position on if no statement changes the table in between. look: the log may be
// read ahead for that.
func (s *schemaVersions) check(ctx context.Context, t *mapped, at outbox.Position, look bool) error {
	name := s.key(t.name)
	at.GTIDs = ""
	v := s.at(name, at)
	if agreed, ok := s.agreed[name]; s.db == nil || v.Table != nil && ok && agreed.Compare(at) >= 0 {
		return nil
	}
	s.tried[name] = time.Now()
	now, err := s.read(ctx, t.name)
	if err != nil {
		return err
	}
	if v.Table != nil && sameDefinition(v.Table, now.Table) {
		s.agreed[name] = now.From
		return s.adopt(name, v, now.Table)
	}
	// Rows of other tables can be left to the sweep: the log is not read twice for them.
	if !look || s.ahead == nil || at.File == "" || !v.known() && !t.only {
		return s.put(name, now)
	}
	future := s.copy(at)
	if err := s.ahead(ctx, future, at, now.From); err != nil {
		return fmt.Errorf("look for statements that change %s up to %s: %w", t.name, now.From, err)
	}
	then := future.at(name, now.From)
	switch {
	case v.known() && then.Table != nil && sameDefinition(then.Table, now.Table):
		s.agreed[name] = now.From
		return nil
	case !v.known() && then.From.Compare(v.From) == 0:
		s.agreed[name] = now.From
		now.From = at
		return errors.Join(s.doubt(name, at), s.set(name, now))
	case v.known() && !then.known(): // not comparable: table maps are the check
		return s.put(name, now)
	}
	if v.known() {
		t.refused(fmt.Errorf("the server reports other columns than the statements in the log lead to, between %s and %s", at, now.From))
	}
	return errors.Join(s.doubt(name, at), s.put(name, now))
}

// adopt takes the character sets that the log did not show.
func (s *schemaVersions) adopt(name string, v schemaVersion, table *definition.Table) error {
	if slices.Equal(v.Table.Columns, table.Columns) && v.Table.Charset == table.Charset {
		return nil
	}
	v.Table = table
	return s.set(name, v)
}

// set replaces the version that begins at the same position.
func (s *schemaVersions) set(name string, v schemaVersion) error {
	list := slices.Clone(s.known[name])
	for i := range list {
		if list[i].From.Compare(v.From) == 0 {
			v.Source = s.info.ID
			list[i] = v
		}
	}
	return s.save(name, list)
}

// copy returns the versions up to a position, to follow the statements behind it; it neither asks nor stores.
func (s *schemaVersions) copy(at outbox.Position) *schemaVersions {
	out := &schemaVersions{info: s.info, mapped: s.mapped, known: map[string][]schemaVersion{}}
	for name, list := range s.known {
		n, _ := slices.BinarySearchFunc(list, at, func(v schemaVersion, at outbox.Position) int {
			return cmp.Or(v.From.Compare(at), -1) // those at the position, too
		})
		if n > 0 {
			out.known[name] = slices.Clone(list[:n])
		}
	}
	return out
}

// refresh asks the server for the current columns. If that fails the rows are deferred and the next table map tries again.
func (s *schemaVersions) refresh(t *mapped, at outbox.Position, pause time.Duration) {
	if s.db == nil || time.Since(s.tried[s.key(t.name)]) < pause {
		return
	}
	if err := s.check(s.ctx, t, at, false); err != nil && s.ctx.Err() == nil {
		t.refused(err)
	}
}

// differs takes that rows at a position do not fit to the version: it is in doubt, and the server is asked.
func (s *schemaVersions) differs(t *mapped, at outbox.Position) {
	name := s.key(t.name)
	if s.db == nil || time.Since(s.tried[name]) < differsPause {
		return
	}
	delete(s.agreed, name)
	if err := s.doubt(name, at); err != nil {
		t.refused(err)
		return
	}
	s.refresh(t, at, 0)
}

// sameDefinition reports whether rows of two definitions are read in the same way. A character set that is not known fits to any.
func sameDefinition(a, b *definition.Table) bool {
	return slices.EqualFunc(a.Columns, b.Columns, func(a, b definition.Column) bool {
		charsets := a.Charset == "" || b.Charset == "" || strings.EqualFold(a.Charset, b.Charset)
		types := a.Type == b.Type || len(logTypes[a.Type]) > 0 && slices.Equal(logTypes[a.Type], logTypes[b.Type])
		return a.Name == b.Name && types && a.Unsigned == b.Unsigned && charsets
	})
}

// lookAhead reads a part of the log for its statements.
func (r *Reader) lookAhead(p serverState) func(ctx context.Context, s *schemaVersions, from, to outbox.Position) error {
	return func(ctx context.Context, s *schemaVersions, from, to outbox.Position) error {
		from.GTIDs = ""
		if from.Compare(to) >= 0 {
			return nil
		}
		looker := New(Config{Server: r.cfg.Server, Heartbeat: lookHeartbeat}, nil, zap.NewNop(), prometheus.NewRegistry())
		looker.tables.schemas = s
		part := &part{each: func(txn *outbox.Txn) (more bool) { return txn.End.Compare(to) < 0 }}
		part.stream = looker.newStream(ctx, part, from)
		part.stream.name, part.stream.skip = lookerName(), from
		if err := part.stream.run(looker.cfg, p, from, part); !errors.Is(err, errPartRead) {
			return err
		}
		return ctx.Err()
	}
}
