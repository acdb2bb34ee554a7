package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Store is the open state directory.
//
// Three locks, taken in this order: life is held for reading by every call that touches the engine, so that Close waits
// for them; write is held by one writer through its sync; state guards the fields that readers see, for moments only, so
// that a hanging disk does not hang the status page.
type Store struct {
	dir     string
	opts    Options
	metrics *metrics
	opened  atomic.Bool
	failure atomic.Pointer[error]

	complained atomic.Int64 // when the log was told of work that failed in the background, in Unix nanoseconds

	life   sync.RWMutex
	db     *pebble.DB
	watch  io.Closer // of the slow-disk watch
	closed bool

	write    sync.Mutex
	batch    *pebble.Batch
	key, val []byte  // buffers of the record being written
	journal  journal // what is on the disk, by now or with the batch under way

	state    sync.Mutex // written with both locks held, so that a writer reads without
	origin   Origin
	progress progress
	entries  int           // rows in the journal
	waits    table.WaitMap // has a lock of its own
	lastGap  uint64
	openGaps int
	pause    *outbox.Pause

	lastChange uint64
}

// progress is whose log is read, up to where, and the history of that. A writer changes a copy and stores it when the disk has it.
type progress struct {
	source        server.ID
	hasSource     bool
	crossed       bool // the source changed in this run: positions of both servers may still be on their way here
	checkpoint    outbox.Position
	hasCheckpoint bool
	at            time.Time     // when the checkpoint was written
	history       []historyItem // the history, oldest first
	appended      int           // history entries since the last thinning
	epoch         uint64        // of the last Reset in this run
}

// Commit writes one step of the fast path in one synced batch: sent enters the journal, written leaves it, and the checkpoint
// moves if the given one is ahead of it. A checkpoint that is not ahead is ignored, so that late calls do no harm (failure C06).
// A nil checkpoint changes nothing, and neither does one of another epoch than that of the last Reset: it was read before the
// checkpoint was reset. A call that would change nothing writes nothing.
//
// Every completion in sent must have the completion ActionMarkSent: the journal is proof of delivery.
func (s *Store) Commit(sent []outbox.Completion, written []outbox.Identity, checkpoint *outbox.Position, epoch uint64) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	for i := range sent {
		if sent[i].Action != outbox.ActionMarkSent {
			return errors.New("checkpoint: a " + sent[i].Action.String() + " completion was to enter the journal of sent rows")
		}
	}
	moves := checkpoint != nil && epoch == s.progress.epoch && s.ahead(*checkpoint)
	if len(sent) == 0 && len(written) == 0 && !moves {
		return nil
	}
	now, next := time.Now(), s.progress
	err := s.putJournal(now, sent, written)
	if err == nil && moves {
		err = s.putAdvance(&next, now, *checkpoint)
	}
	if err == nil && !s.batch.Empty() {
		err = s.sync()
	}
	if err != nil {
		s.fail(err) // memory and disk may disagree about the journal
		return err
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.progress = next
	s.entries = s.journal.len()
	return nil
}

// ahead reports whether p lies behind more of the log than the checkpoint. Within one server's log, file and offset show that at
// no cost. After a failover, or where the log was given a new name, file numbers restart: then the GTID sets decide.
func (s *Store) ahead(p outbox.Position) bool {
	at := s.progress.checkpoint
	further := !s.progress.hasCheckpoint || p.Compare(at) > 0
	if p.GTIDs == at.GTIDs || p.GTIDs == "" || at.GTIDs == "" || further && !s.progress.crossed {
		return further
	}
	order, known := outbox.CompareGTIDs(s.progress.source.Flavor, p.GTIDs, at.GTIDs)
	return known && order > 0
}

// scan calls each for every record of the kinds from first to last, in the order of their keys, until it returns an error.
func (s *Store) scan(first, last byte, each func(key, value []byte) error) (err error) {
	s.life.RLock()
	defer s.life.RUnlock()
	if err := s.failed(); err != nil {
		return err
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{first}, UpperBound: []byte{last + 1}})
	if err != nil {
		return classify(s.dir, err)
	}
	defer func() { err = classify(s.dir, errors.Join(err, it.Close())) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := each(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

// failed returns why the store cannot be used. life is held.
func (s *Store) failed() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if s.closed {
		return ErrClosed
	}
	return nil
}

// startWriting makes the caller the one writer and gives it an empty batch; endWriting must follow, unless it fails.
func (s *Store) startWriting() error {
	s.life.RLock()
	s.write.Lock()
	if err := s.failed(); err != nil {
		s.endWriting()
		return err
	}
	s.batch.Reset()
	return nil
}

func (s *Store) endWriting() {
	s.write.Unlock()
	s.life.RUnlock()
}

// put adds the record in the buffers to the batch.
func (s *Store) put() error {
	seal(s.key, s.val)
	return s.batch.Set(s.key, s.val, nil)
}

// sync makes the batch durable. The engine returns nil even after it called Fatalf, so the failure is asked for.
func (s *Store) sync() error {
	started := time.Now()
	if err := s.batch.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("state directory %s: %w", s.dir, err)
	}
	s.metrics.sync.Observe(time.Since(started).Seconds())
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// commitUnsynced writes the batch without waiting for the disk: a crash may lose it.
func (s *Store) commitUnsynced() error {
	if err := s.batch.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("state directory %s: %w", s.dir, err)
	}
	return nil
}

// Close waits for the calls under way, then releases the directory. Later calls return ErrClosed; a second Close does
// nothing.
func (s *Store) Close() error {
	s.metrics.unregister(s.opts.Registerer)
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.batch.Close(), s.db.Close(), s.watch.Close())
}
