package canal

import (
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// schemaVersions names columns where the log does not.
type schemaVersions struct{}

func (s *schemaVersions) plan(t *mapped, tm *replication.TableMapEvent) *plan {
	return &plan{id: tm.TableID, fault: "the log has no column names (binlog_row_metadata is not FULL)"}
}

func (s *schemaVersions) end(t *mapped, at outbox.Position) {}
