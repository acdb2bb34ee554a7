// Package doctor is every check before the first message, and before a start: the state directory and its disk, the server,
// the account and its privileges, the tables, other relays, clocks and the broker. Each finding says what was found, what
// follows from it, and the statement or command that fixes it.
//
// Guarantee: it changes nothing, in the database, at the broker and on the disk. It needs no daemon, and works beside one.
// It is given what it looks at and knows no station. It owns no goroutine.
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

// patience bounds each conversation of the check: a host that swallows packets must not hold it up.
const patience = 15 * time.Second

// Parts are what the doctor looks at.
type Parts struct {
	Config   *config.Config
	Mappings []table.Mapping
	ServerID uint32                        // under which the reader registers
	Server   func() (server.Config, error) // reads the files of source.tls
	Replica  func() (server.Config, error) // likewise, of fallback.read_from

	// Lease looks at the lease table; first is a table of the first entry of tables.
	Lease func(ctx context.Context, db *sql.DB, first string) (server.Finding, error)

	// Running is the checkpoint of the relay that uses the state directory; an error when no relay answers.
	Running func(ctx context.Context) (outbox.Position, error)
	State   func() (State, error)                      // reads the state directory without opening it for writing
	Free    func(dir string) (bytes uint64, err error) // room on its file system
	MinFree uint64                                     // with less, in bytes, there is no start

	// Broker asks the broker about the topics of the newest rows; largest is the largest body of each, in bytes.
	Broker func(ctx context.Context, topics []string, largest map[string]int64) []server.Finding
}

// State is what a state directory holds.
type State struct {
	InUse      bool            // another process has it; nothing else is known
	Source     server.ID       // zero when none is recorded
	Checkpoint outbox.Position // zero when there is none
	At         time.Time       // when the checkpoint was written
}

// Check looks at everything and returns all findings at once.
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

// doctor collects findings; what one step learns the next ones use.
type doctor struct {
	Parts
	cfg      *config.Config
	findings []server.Finding

	running bool // a daemon has the state directory
	held    State
	leased  bool // a relay would take part in the lease

	topics  []string         // that recent rows or the configuration name
	largest map[string]int64 // the largest body of the recent rows of each topic, in bytes
}

// notChecked is a line about what the account may not look at; right is the privilege that would let it.
func (d *doctor) notChecked(subject, right, what string, args ...any) {
	d.add(server.NotChecked, subject, "", "needs %s: %s", right, fmt.Sprintf(what, args...))
}

// configured adds the topics that the configuration names, which no row may have named yet.
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
