// Package doctor has the checks before the first message, and before a start: the state directory and its disk, the server, the
// account and its privileges, the tables, other relays, clocks and the broker. Each finding says what was found, what follows
// from it, and the statement or command that fixes it.
//
// Guarantee: it changes nothing, in the database, at the broker and on the disk. It needs no running relay, and works next to
// one. Its caller passes what it checks; it imports no station. It owns no goroutine.
package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// patience bounds each exchange of the check: a host that drops packets must not block it.
const patience = 15 * time.Second

// Parts are what doctor checks.
type Parts struct {
	Config   *config.Config
	Mappings []table.Mapping
	ServerID uint32                        // under which the reader registers
	Server   func() (server.Config, error) // reads the files of source.tls
	Replica  func() (server.Config, error) // likewise, of fallback.read_from

	// Lease checks the lease table; first is a table of the first entry of tables.
	Lease func(ctx context.Context, db *sql.DB, first string) (server.Finding, error)

	// Running is the checkpoint of the relay that uses the state directory; an error when no relay answers.
	Running func(ctx context.Context) (outbox.Position, error)
	State   func() (State, error)                      // reads the state directory without opening it for writing
	Free    func(dir string) (bytes uint64, err error) // room on its file system
	MinFree uint64                                     // with less, in bytes, a start is refused

	// Broker queries the broker about the topics of the newest rows; largest is the largest body of each, in bytes.
	Broker func(ctx context.Context, topics []string, largest map[string]int64) []server.Finding
}

// State is the content of a state directory.
type State struct {
	InUse      bool            // another process uses it; nothing else is known
	Source     server.ID       // zero when none is recorded
	Checkpoint outbox.Position // zero when there is none
	At         time.Time       // when the checkpoint was written
}

// Check runs all checks and returns all findings at once.
func Check(ctx context.Context, parts Parts) []server.Finding {
	d := &doctor{Parts: parts, cfg: parts.Config, largest: map[string]int64{}}
	d.files()
	d.state(ctx)
	d.port()
	d.alerts()
	d.source(ctx)
	d.configured()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return append(d.findings, d.Broker(ctx, d.topics, d.largest)...)
}

// doctor collects findings; later steps use results of earlier ones.
type doctor struct {
	Parts
	cfg      *config.Config
	findings []server.Finding

	running bool // a relay uses the state directory
	held    State
	leased  bool // a relay would take part in the lease

	topics  []string         // topics of recent rows or of the configuration
	largest map[string]int64 // the largest body of the recent rows of each topic, in bytes
}

// notChecked adds a line about what the account cannot read; right is the missing privilege.
func (d *doctor) notChecked(subject, right, what string, args ...any) {
	d.add(server.NotChecked, subject, "", "needs %s: %s", right, fmt.Sprintf(what, args...))
}

// configured adds the topics of the configuration, which no row may have yet.
func (d *doctor) configured() {
	names := slices.Collect(maps.Keys(d.cfg.Retry.Topics))
	for _, m := range d.Mappings {
		if m.Topic != nil {
			names = append(names, m.Topic.Names()...)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if !slices.Contains(d.topics, name) {
			d.topics = append(d.topics, name)
		}
	}
}

func (d *doctor) add(severity server.Severity, subject, fix, what string, args ...any) {
	d.findings = append(d.findings, server.Finding{Severity: severity, Subject: subject, What: fmt.Sprintf(what, args...), Fix: fix})
}
