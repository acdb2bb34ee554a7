package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/store"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/retention"
)

// expiries translates what leaves; retried says that FAILED rows are tried again.
func expiries(c config.Retention, retried bool) (all []table.Expiry) {
	if c.Sent > 0 {
		all = append(all, table.Expiry{Status: outbox.Sent, Age: c.Sent})
	}
	if c.Archive > 0 {
		all = append(all, table.Expiry{Status: outbox.Sent, Age: c.Archive, Into: table.ArchiveSuffix})
	}
	if c.Failed > 0 {
		all = append(all, table.Expiry{Status: outbox.Failed, Age: c.Failed, Into: table.FailedSuffix, Retried: retried})
	}
	return all
}

// expiring translates what leaves which table, and when.
func expiring(c config.Retention, tables []*table.Table) retention.Config {
	from, to, _ := c.Hours() // the configuration was validated
	of := map[string][]table.Expiry{}
	for _, t := range tables {
		of[t.Name()] = t.Expiries()
	}
	return retention.Config{Tables: names(tables), Expiries: of, Window: retention.Window{From: from, To: to}, MaxLag: c.MaxReplicaLag}
}

// Matching are the tables that a configuration names, and those that its patterns match now, for which it asks the server; in the order of
// the configuration.
func Matching(ctx context.Context, cfg *config.Config) (named, matched []config.Table, err error) {
	maps, err := mappings(cfg)
	if err != nil {
		return nil, nil, err
	}
	var exact []table.Mapping
	for i, t := range cfg.Tables {
		if !t.IsPattern() {
			named, exact = append(named, t), append(exact, maps[i])
		}
	}
	if len(named) == len(cfg.Tables) {
		return named, nil, nil
	}
	db, err := OpenDatabase(cfg)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for i, t := range cfg.Tables {
		if !t.IsPattern() {
			continue
		}
		found, findings, err := table.Expand(ctx, db, append(slices.Clip(exact), maps[i]))
		if err != nil {
			return nil, nil, err
		}
		if len(findings) > 0 {
			return nil, nil, operator.Usagef("%s: %s; %s", findings[0].Subject, findings[0].What, findings[0].Fix)
		}
		for _, m := range found[len(exact):] {
			one := t
			one.Name = m.Schema + "." + m.Name
			matched = append(matched, one)
		}
	}
	return named, matched, nil
}

// errRetentionOff is the answer where nothing ever leaves.
var errRetentionOff = operator.Usagef("retention is off: set retention.sent, retention.archive or retention.failed in the configuration, for all tables or under tables[]")

// Leaving is what would leave a table now.
type Leaving struct {
	Table   string `json:"table"`
	Status  string `json:"status"`
	Action  string `json:"action"`   // delete, or move
	Into    string `json:"into"`     // the table that the rows move to; "" when they are deleted
	Rows    int    `json:"rows"`     // that are old enough
	AtLeast bool   `json:"at_least"` // the look ended before the end of the table: there may be more
	Seconds int64  `json:"older_than_seconds"`
}

// How much of each table a preview looks at.
const (
	previewRows = 1_000_000
	previewTime = time.Minute
)

// PreviewRetention counts what would leave the tables now, and changes nothing. It needs no running relay.
func PreviewRetention(ctx context.Context, cfg *config.Config) (all []Leaving, err error) {
	if !slices.ContainsFunc(cfg.Tables, func(t config.Table) bool { return len(expiries(cfg.RetentionOf(&t), false)) > 0 }) {
		return nil, errRetentionOff
	}
	db, err := OpenDatabase(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tables, err := bound(ctx, db, cfg)
	if err != nil {
		return nil, err
	}
	rows := store.New(db, tables, nil, nil)
	for _, t := range rows.Tables() {
		if len(t.Expiries()) == 0 {
			continue
		}
		counts, err := retention.Preview(ctx, rows, t.Name(), t.Expiries(), previewRows, previewTime)
		if err != nil {
			return nil, err
		}
		for _, c := range counts {
			one := Leaving{
				Table: t.Name(), Status: c.Expiry.Status.String(), Action: "delete", Rows: c.Rows, AtLeast: c.AtLeast,
				Seconds: int64(c.Expiry.Age / time.Second),
			}
			if c.Expiry.Into != "" {
				one.Action, one.Into = "move", t.Name()+c.Expiry.Into
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// leave asks for a pass.
func (s *service) leave() error {
	switch {
	case s.in.leaving.Off():
		return errRetentionOff
	case !s.in.relay.Ready():
		return errors.New("the relay is starting or stopping")
	}
	s.in.leaving.Now()
	return nil
}

// showRetention is nil while nothing ever leaves.
func (a *active) showRetention(now time.Time) *operator.RetentionStatus {
	if a.leaving.Off() {
		return nil
	}
	s := a.leaving.State()
	return &operator.RetentionStatus{Running: s.Running, Paused: s.Paused, LastSeconds: ageOf(s.Last, now), Rows: s.Rows, Error: s.Error}
}
