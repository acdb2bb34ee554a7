package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"go.uber.org/zap"
)

// engineFormat is Pebble's on-disk format: the newest of the pinned release, written out so that a new release of the
// library does not change what is on disk by itself (it never goes back). DESIGN.md says why not the oldest.
const engineFormat = pebble.FormatValueSeparation

// slowDisk is how long a file operation may take before it is reported.
const slowDisk = 5 * time.Second

const (
	engineDir   = "db"          // Pebble's own directory inside the state directory
	asidePrefix = "quarantine-" // what a damaged one is renamed to
)

// guardedFS makes directories private and names a taken lock as such.
type guardedFS struct{ vfs.FS }

func (f guardedFS) MkdirAll(dir string, _ os.FileMode) error { return f.FS.MkdirAll(dir, 0o700) }

func (f guardedFS) Lock(name string) (io.Closer, error) {
	lock, err := f.FS.Lock(name)
	var path *fs.PathError // the file itself could not be made: no lock was tried
	if err != nil && !errors.As(err, &path) {
		return nil, fmt.Errorf("%s: %w (%v)", f.PathDir(f.PathDir(name)), ErrLocked, err)
	}
	return lock, err
}

// engineOptions is every setting that differs from Pebble's defaults; the reasons are in DESIGN.md.
func (e *engine) engineOptions() *pebble.Options {
	o := &pebble.Options{
		CacheSize:          1 << 20,
		MemTableSize:       4 << 20,
		MaxOpenFiles:       64,
		FormatMajorVersion: engineFormat,
		Logger:             engineLog{e},
		EventListener:      e.listener(),
		ReadOnly:           e.opts.readOnly,
	}
	o.Experimental.FileCacheShards = 1
	files := e.system()
	if e.opts.FS == nil {
		// Made here and not by the engine, which forgets to end it when it cannot open.
		files, e.watch = vfs.WithDiskHealthChecks(vfs.Default, slowDisk, nil, o.EventListener.DiskSlow)
	}
	o.FS = guardedFS{files}
	if e.opts.Simulated {
		simulate(o)
	}
	return o
}

// system is the file system of the store, without our guards.
func (e *engine) system() vfs.FS {
	if e.opts.FS == nil {
		return vfs.Default
	}
	return e.opts.FS
}

// simulate takes out what costs time or wakes up by the clock. Without compactions files pile up in the top level, so the
// limit on them goes too.
func simulate(o *pebble.Options) {
	o.CacheSize = 64 << 10
	o.MemTableSize = 1 << 20
	o.DisableAutomaticCompactions = true
	o.DisableTableStats = true
	o.L0CompactionThreshold = math.MaxInt32
	o.L0StopWritesThreshold = math.MaxInt32
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
}

// complaintPause lies between two lines about work in the background: on a full disk the engine tries again, and fails,
// hundreds of times in a second.
const complaintPause = time.Minute

func (e *engine) mayComplain() bool {
	now, last := time.Now().UnixNano(), e.complained.Load()
	return (last == 0 || time.Duration(now-last) >= complaintPause) && e.complained.CompareAndSwap(last, now)
}

func (e *engine) listener() *pebble.EventListener {
	return &pebble.EventListener{
		DiskSlow: func(i pebble.DiskSlowInfo) {
			e.metrics.trouble.WithLabelValues(troubleSlow).Inc()
			e.opts.Log.Warn("the disk of the state directory is slow; acknowledgements wait for it",
				zap.String("path", i.Path), zap.Duration("duration", i.Duration), zap.Stringer("operation", i.OpType))
		},
		BackgroundError: func(err error) {
			e.metrics.trouble.WithLabelValues(troubleBackground).Inc()
			if !e.mayComplain() {
				return
			}
			e.opts.Log.Error("the state store could not write in the background; it tries again: check the disk's space and health",
				zap.String("dir", e.dir), zap.String("error", err.Error()))
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			e.metrics.trouble.WithLabelValues(troubleCorruption).Inc()
			// Open returns what it finds. Later the way to the same treatment is a restart.
			if e.opened.Load() {
				e.fail(&CorruptError{Dir: e.dir, Err: fmt.Errorf("%s: %w", i.Path, i.Details)})
			}
		},
	}
}

// engineLog writes the messages of Pebble to the log of the process. Infof reports every flush and every file, so it logs at
// debug level.
type engineLog struct{ engine *engine }

func (l engineLog) Infof(format string, args ...any) {
	if entry := l.engine.opts.Log.Check(zap.DebugLevel, ""); entry != nil {
		entry.Message = fmt.Sprintf(format, args...)
		entry.Write(zap.String("engine", "pebble"))
	}
}

func (l engineLog) Errorf(format string, args ...any) {
	l.engine.opts.Log.Error(fmt.Sprintf(format, args...), zap.String("engine", "pebble"), zap.String("dir", l.engine.dir))
}

func (l engineLog) Fatalf(format string, args ...any) {
	l.engine.fail(fmt.Errorf("state directory %s: "+format, append([]any{l.engine.dir}, args...)...))
}

// fail ends the store: the handle's memory and its files may disagree from here on, so nothing more is read or written
// through it. Only the first failure is reported.
func (e *engine) fail(err error) {
	if !e.failure.CompareAndSwap(nil, &err) {
		return
	}
	e.opts.Log.Error("the state store failed and must not be used on: the process ends here, and a restart resumes from what was synced",
		zap.String("dir", e.dir), zap.String("error", err.Error()))
	e.opts.OnFatal(err)
}

// inspect checks the directory before the engine opens it. It finds two states that the engine reports badly or not at all: a
// later format, and a store whose manifest marker is gone (the engine would create a new, empty store in its place). found
// reports whether the directory exists.
func inspect(files vfs.FS, dir string) (found bool, err error) {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	format, err := atomicfs.ReadMarker(files, dir, "format-version")
	if err != nil {
		return true, err
	}
	if n, err := strconv.ParseUint(format, 10, 64); err == nil && n > uint64(engineFormat) {
		return true, fmt.Errorf("%w (engine format %d, this release reads up to %d)", ErrNewer, n, engineFormat)
	}
	manifest, err := atomicfs.ReadMarker(files, dir, manifestMarker)
	if err != nil {
		return true, err
	}
	data := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".sst") })
	switch {
	case data >= 0 && manifest == "":
		return true, fmt.Errorf("%s is there, but the marker that names the manifest is gone", names[data])
	case data < 0 && manifest != "" && !slices.Contains(names, manifest):
		return true, errHalfMade
	}
	return true, nil
}

const manifestMarker = "manifest"

// errHalfMade says that a crash cut the making of a store: the marker names a manifest that is not there, and there is no log and no
// table. The engine makes manifest and marker before the first log, and their names reach the disk in any order.
var errHalfMade = errors.New("a crash cut the making of the store")

// clearHalfMade removes the marker, so that the engine recreates the store. It checks again under the lock: another process may
// be creating the store at this time.
func clearHalfMade(files vfs.FS, dir string) (err error) {
	lock, err := pebble.LockDirectory(dir, files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := inspect(files, dir); !errors.Is(err, errHalfMade) {
		return err
	}
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker."+manifestMarker+".") {
			if err := files.Remove(files.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
