package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Imported says what an import has done, or would do.
type Imported struct {
	Dir        string           `json:"dir"`
	ExportedAt time.Time        `json:"exported_at"`
	Source     string           `json:"source"`
	Position   outbox.Position  `json:"position"`
	Journal    int              `json:"journal"`  // sent rows that the table may not show as SENT yet
	Waits      int              `json:"waits"`    // refused rows that wait
	Replaced   string           `json:"replaced"` // where the state went that was there; "" when there was none
	Notes      []string         `json:"notes"`    // what stood in the way, and was overruled
	Applied    bool             `json:"applied"`  // false: a dry run
	current    *outbox.Position // of the state that is there; nil: none
}

// ImportState puts an exported state into the state directory of a configuration. Without force it is refused when the directory has a
// state, and when the configured server is not the one of the export or cannot be asked. A state that is replaced is moved aside.
func ImportState(ctx context.Context, cfg *config.Config, from io.Reader, force, dryRun bool) (done Imported, err error) {
	state, err := checkpoint.ReadState(from)
	if err != nil {
		return done, operator.Usagef("the file cannot be imported: %v", err)
	}
	done = Imported{
		Dir: cfg.Checkpoint.Dir, ExportedAt: state.At, Source: state.Source.String(), Position: state.Checkpoint, Notes: []string{},
	}
	done.Journal, done.Waits = state.Rows()
	var obstacles []string
	if why := otherServer(ctx, cfg, state); why != "" {
		obstacles = append(obstacles, why)
	}
	why, err := done.occupied(ctx)
	if err != nil {
		return done, err
	}
	if why != "" {
		obstacles = append(obstacles, why)
	}
	if len(obstacles) > 0 && !force {
		return done, operator.Refusedf("nothing was imported: %s; --force does it all the same", strings.Join(obstacles, "; and "))
	}
	if done.Notes = append(done.Notes, obstacles...); dryRun {
		return done, nil
	}
	done.Applied = true
	return done, done.write(ctx, state)
}

// otherServer says why the configured server may not be the one of a state; "" when it is.
func otherServer(ctx context.Context, cfg *config.Config, state *checkpoint.State) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := OpenDatabase(cfg)
	if err != nil {
		return "the database cannot be asked who it is: " + err.Error()
	}
	defer func() { _ = db.Close() }() // of a connection that is not needed any more
	info, end, err := (&asker{db: db}).Look(ctx)
	if err != nil {
		return "the database cannot be asked who it is: " + err.Error()
	}
	switch relation, why := server.CheckIdentity(state.Source, state.Checkpoint, info, end); relation {
	case server.Foreign:
		return "the state is of another server: " + why
	case server.Shorter:
		return "the server has less log than the state: " + why
	}
	return ""
}

// occupied says why the directory is not free; "" when it is.
func (i *Imported) occupied(ctx context.Context) (string, error) {
	there, err := checkpoint.Peek(ctx, i.Dir, checkpoint.Options{})
	var damaged *checkpoint.CorruptError
	switch {
	case errors.Is(err, checkpoint.ErrLocked):
		return "", operator.Refusedf("nothing was imported: %v", err)
	case errors.As(err, &damaged):
		i.current = &outbox.Position{}
		return err.Error(), nil
	case err != nil:
		return "", err
	case there.Checkpoint.IsZero() && there.Journal == 0:
		return "", nil
	}
	i.current = &there.Checkpoint
	where := "the state there is at " + there.Checkpoint.String()
	switch order := i.Position.Compare(there.Checkpoint); {
	case there.Source.String() != i.Source:
		where += ", of another server"
	case order < 0:
		where += fmt.Sprintf(", and the import goes back to %s: what lies between is read again, each row is looked up in its table", i.Position)
	case order > 0:
		where += fmt.Sprintf(", and the import continues at %s: what lies between is left to the sweep", i.Position)
	}
	return i.Dir + " has a state already: " + where, nil
}

// write makes the store, or puts the state into an empty one. What was there is moved aside first and stays for a look.
func (i *Imported) write(ctx context.Context, state *checkpoint.State) (err error) {
	if i.current != nil {
		if i.Replaced, err = checkpoint.Quarantine(i.Dir, nil); err != nil {
			return err
		}
	}
	store, err := checkpoint.OpenContext(ctx, i.Dir, checkpoint.Options{})
	if errors.Is(err, checkpoint.ErrLocked) {
		return operator.Refusedf("nothing was imported: %v", err)
	}
	if err != nil {
		return err
	}
	change := checkpoint.Change{
		At: time.Now().UTC().Truncate(time.Millisecond), By: operator.Caller(ctx), What: "checkpoint import of a state exported at " + i.ExportedAt.Format(time.RFC3339),
		After: i.Position.String(),
	}
	if i.current != nil {
		change.Before = i.current.String()
	}
	return errors.Join(errors.Join(store.Import(state), store.Changes.Add(&change)), store.Close())
}
