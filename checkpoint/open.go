package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Options of a Store. The zero value is usable.
type Options struct {
	FS         vfs.FS                // nil: the operating system's
	Log        *zap.Logger           // nil: silent
	Registerer prometheus.Registerer // nil: no metrics

	// OnFatal is called once, with the reason, when a write failed in a way that leaves the handle unusable (failure C03);
	// the last words are in the log by then. It should end the process, which is what nil does, with exit code 1. If it
	// returns, as in tests, every further call on the Store returns the same error.
	OnFatal func(error)

	// Simulated is for short-lived stores in memory: no background compaction, nothing that wakes up by the clock.
	Simulated bool

	readOnly bool // of Peek
}

// Exists reports whether dir holds a store. It opens no file, so it may be asked at any time.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, engineDir))
	return err == nil
}

// Open opens the store in dir, which is made, private to this user, when it is missing. Every record is read and checked
// once, so that damage shows here and not in the middle of work.
//
// Errors: ErrLocked, ErrNewer, *CorruptError, *SpaceError, or the operating system's. Nothing in this process may open files
// in dir as long as the Store is open: closing any of them would silently give up the lock (failure C02).
func Open(dir string, opts Options) (*Store, error) {
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	if opts.OnFatal == nil {
		log := opts.Log
		opts.OnFatal = func(error) {
			_ = log.Sync() // the process ends in any case, and standard error cannot be synced
			os.Exit(1)
		}
	}
	if opts.FS == nil {
		// The engine finds its own locks by name: one directory must have one name.
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("state directory %s: %w", dir, err)
		}
		dir = absolute
	}
	e := &engine{dir: dir, opts: opts, watch: io.NopCloser(nil)}
	s := newStore(e)
	e.metrics = newMetrics(s)
	if err := s.open(); err != nil {
		return nil, errors.Join(err, e.watch.Close())
	}
	if err := e.metrics.register(opts.Registerer); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return s, nil
}

func (s *Store) open() error {
	e := s.files
	if err := e.open(); err != nil {
		return err
	}
	err := s.load()
	if err == nil && s.origin.CreatedAt.IsZero() {
		err = s.begin()
	}
	if err == nil {
		err = e.failed()
	}
	if err != nil {
		return errors.Join(classify(e.dir, err), e.batch.Close(), e.db.Close())
	}
	e.opened.Store(true)
	return nil
}

// open opens Pebble's directory.
func (e *engine) open() error {
	o := e.engineOptions()
	path := o.FS.PathJoin(e.dir, engineDir)
	if !e.opts.readOnly {
		if err := room(o.FS, e.dir); err != nil {
			return err
		}
	}
	found, err := inspect(o.FS, path)
	if errors.Is(err, errHalfMade) && !e.opts.readOnly {
		err = clearHalfMade(o.FS, path)
	}
	if err != nil {
		return classify(e.dir, err)
	}
	db, err := openEngine(path, o)
	if err != nil && !found { // what was not there is not damaged
		return fmt.Errorf("state directory %s cannot be made: %w (make it, for the user that runs canal-outbox)", e.dir, err)
	}
	if err != nil {
		return classify(e.dir, err)
	}
	e.db, e.batch.Batch = db, db.NewBatch()
	return nil
}

// openEngine returns a panic as an error: replaying a damaged log can run into one of the engine's own checks.
func openEngine(path string, o *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			db, err = nil, fmt.Errorf("%w: the engine gave up on it: %v", errRecord, cause)
		}
	}()
	return pebble.Open(path, o)
}

// begin writes the first record of a new store. Records without it mean that part of the store is gone.
func (s *Store) begin() error {
	if s.progress.hasCheckpoint || s.progress.hasSource || len(s.progress.history) > 0 || s.journal.len() > 0 || s.gaps.last > 0 {
		return fmt.Errorf("%w: the first record is missing", errRecord)
	}
	e := s.files
	if e.opts.readOnly {
		return nil
	}
	names, err := e.system().List(e.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	origin := Origin{CreatedAt: time.Now().UTC()}
	for _, name := range names {
		if strings.HasPrefix(name, asidePrefix) {
			origin.Quarantined = name
		}
	}
	err = e.update(func(b *batch) error { return b.putJSON([]byte{kindOrigin}, origin) }, func() { s.origin = origin })
	if err != nil || e.opts.Simulated {
		return err
	}
	// The engine made the first log before it raised its format. Only in the next one can damage be told from a torn end.
	return e.db.Flush()
}

// load reads every record once.
func (s *Store) load() (err error) {
	it, err := s.files.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var rows journalReader
	for ok := it.First(); ok; ok = it.Next() {
		if isJournal(it.Key()[0]) {
			err = rows.read(it.Key(), it.Value(), s.journal.load)
		} else {
			err = s.loadRecord(it.Key(), it.Value())
		}
		if err != nil {
			return err
		}
	}
	s.entries, s.newest = s.journal.len(), s.journal.last
	return errors.Join(it.Error(), rows.end())
}

func (s *Store) loadRecord(key, value []byte) (err error) {
	switch kind := key[0]; kind {
	case kindCheckpoint, kindHistory, kindOrigin, kindSource:
		return s.position.load(key, value)
	case kindGap:
		return s.gaps.load(key, value)
	case kindChange:
		return s.Changes.load(key, value)
	case kindWait:
		return s.Waits.load(key, value)
	case kindPause:
		return decodeJSON(key, value, &s.pause)
	case kindDay:
		return decodeJSON(key, value, new(Day))
	case kindSchema, kindPast:
		_, err = unseal(key, value)
	case kindRedelivery:
		_, err = decodeWait(key, value)
	default:
		if _, err = unseal(key, value); err == nil {
			err = fmt.Errorf("%w: unknown kind of record %q", ErrNewer, string(kind))
		}
	}
	return err
}

// Quarantine renames a damaged store inside dir, where it stays for an audit until someone removes it, and returns its new
// name. The next Open makes a new store whose Origin names it. A nil files is the operating system's. Returns ErrLocked
// when the store is in use.
func Quarantine(dir string, files vfs.FS) (aside string, err error) {
	if files == nil {
		if dir, err = filepath.Abs(dir); err != nil {
			return "", fmt.Errorf("state directory %s: %w", dir, err)
		}
		files = vfs.Default
	}
	files = guardedFS{files}
	path := files.PathJoin(dir, engineDir)
	lock, err := pebble.LockDirectory(path, files)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if aside, err = freeName(files, dir); err != nil {
		return "", err
	}
	if err := files.Rename(path, files.PathJoin(dir, aside)); err != nil {
		return "", fmt.Errorf("move the damaged state aside: %w", err)
	}
	parent, err := files.OpenDir(dir)
	if err != nil {
		return "", err
	}
	return aside, errors.Join(parent.Sync(), parent.Close())
}

// freeName is the prefix with the time, later if that is taken: names sort by time.
func freeName(files vfs.FS, dir string) (string, error) {
	for at := time.Now().UTC(); ; at = at.Add(time.Second) {
		name := asidePrefix + at.Format("20060102T150405Z")
		_, err := files.Stat(files.PathJoin(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}
