package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// engine is the open directory under the parts of a Store: one writer at a time, and one treatment of a failing disk.
//
// Three locks, taken in this order: life is held for reading by every call that touches Pebble, so that Close waits for them; write is
// held by one writer through its sync; state guards the fields of the parts that readers see, for short sections only, so that a hanging
// disk does not hang the status page. A writer holds all three while it changes such a field, so it reads them without state.
type engine struct {
	dir     string
	opts    Options
	metrics *metrics
	opened  atomic.Bool
	failure atomic.Pointer[error]

	complained atomic.Int64 // when work that failed in the background was logged last, in Unix nanoseconds

	life   sync.RWMutex
	db     *pebble.DB
	watch  io.Closer // of the slow-disk watch
	closed bool

	write sync.Mutex
	batch batch
	state sync.Mutex
}

// batch is what one write changes.
type batch struct {
	*pebble.Batch
	key, val []byte // buffers of the record being written
}

// put adds the record in the buffers.
func (b *batch) put() error {
	seal(b.key, b.val)
	return b.Set(b.key, b.val, nil)
}

// putBlob adds a record with a payload that the caller encoded.
func (b *batch) putBlob(key, payload []byte) error {
	b.key = append(b.key[:0], key...)
	b.val = append(append(b.val[:0], blankHeader[:]...), payload...)
	return b.put()
}

// putJSON adds one of the records that are written rarely.
func (b *batch) putJSON(key []byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("checkpoint: a %q record: %w", kindOf(key), err)
	}
	return b.putBlob(key, payload)
}

// update lets change fill the batch and writes it, synced: a nil error says that it is on the disk. A batch that stays empty is not
// written. Then done, which may be nil, takes over what readers see, under the state lock.
func (e *engine) update(change func(b *batch) error, done func()) error {
	return e.writeWith(pebble.Sync, change, done)
}

// updateUnsynced is update without waiting for the disk: a crash may lose the change.
func (e *engine) updateUnsynced(change func(b *batch) error) error {
	return e.writeWith(pebble.NoSync, change, nil)
}

func (e *engine) writeWith(mode *pebble.WriteOptions, change func(b *batch) error, done func()) error {
	if err := e.startWriting(); err != nil {
		return err
	}
	defer e.endWriting()
	if err := change(&e.batch); err != nil || e.batch.Empty() {
		return err
	}
	if err := e.commit(mode); err != nil {
		return err
	}
	if done != nil {
		e.state.Lock()
		defer e.state.Unlock()
		done()
	}
	return nil
}

// startWriting makes the caller the one writer and gives it an empty batch; endWriting must follow, unless it fails.
func (e *engine) startWriting() error {
	e.life.RLock()
	e.write.Lock()
	if err := e.failed(); err != nil {
		e.endWriting()
		return err
	}
	e.batch.Reset()
	return nil
}

func (e *engine) endWriting() {
	e.write.Unlock()
	e.life.RUnlock()
}

// commit writes the batch. Pebble returns nil from a synced write even after it called Fatalf, so the failure is read after it.
func (e *engine) commit(mode *pebble.WriteOptions) error {
	started := time.Now()
	if err := e.batch.Commit(mode); err != nil {
		return fmt.Errorf("state directory %s: %w", e.dir, err)
	}
	if !mode.Sync {
		return nil
	}
	e.metrics.sync.Observe(time.Since(started).Seconds())
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// scan calls each for every record of the kinds from first to last, in the order of their keys, until it returns an error.
func (e *engine) scan(first, last byte, each func(key, value []byte) error) (err error) {
	e.life.RLock()
	defer e.life.RUnlock()
	if err := e.failed(); err != nil {
		return err
	}
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{first}, UpperBound: []byte{last + 1}})
	if err != nil {
		return classify(e.dir, err)
	}
	defer func() { err = classify(e.dir, errors.Join(err, it.Close())) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := each(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Error()
}

// get calls read for the record of a key; not when there is none.
func (e *engine) get(key []byte, read func(value []byte) error) (err error) {
	e.life.RLock()
	defer e.life.RUnlock()
	if err := e.failed(); err != nil {
		return err
	}
	value, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	if err != nil {
		return classify(e.dir, err)
	}
	defer func() { err = classify(e.dir, errors.Join(err, closer.Close())) }()
	return read(value)
}

// list returns what decode reads from every record of a kind, in the order of their keys.
func list[T any](e *engine, kind byte, decode func(key, value []byte) (T, error)) (out []T, err error) {
	err = e.scan(kind, kind, func(key, value []byte) error {
		one, err := decode(key, value)
		out = append(out, one)
		return err
	})
	return out, err
}

// failed returns why the store cannot be used. life is held.
func (e *engine) failed() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	if e.closed {
		return ErrClosed
	}
	return nil
}

// close waits for the calls under way, then releases the directory. A second close does nothing.
func (e *engine) close() error {
	e.metrics.unregister(e.opts.Registerer)
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return errors.Join(e.batch.Close(), e.db.Close(), e.watch.Close())
}
