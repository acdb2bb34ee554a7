// Package readback reads from the topics what a process that was killed has sent and not journalled, so that its rows are not sent again.
//
// Guarantee: a row counts as sent only if a record with its message id and its body is in its topic, within the period in which a dead
// process may have sent it, and the message id is of a table in which it names one message: an equal number of another table is no proof.
// Reading ends at its bounds of bytes and time, and on any error; a row that was not found is sent, as without this package. A record that
// is appended after the last look is missed: then the row is sent twice.
//
// A row of the log was sent since the checkpoint of the last process passed it. A row of the sweep waits until the claim of a dead process
// expires, and meanwhile another process may have come and been killed: so for such rows an earlier period is read, too.
//
// The package owns no goroutine beyond a call. Sent and End may be called from several goroutines.
package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

const (
	still    = 300 * time.Millisecond // between two looks of which the second shows nothing more of ours
	together = 8                      // topics that are read at a time

	maxSetBack = 100_000 // rows that are remembered, some 200 bytes each
)

// Config is what to read.
type Config struct {
	Names    func(table string) bool // whether a message id of the table names one message; rows of other tables are not looked for
	From, To time.Time               // the period in which the dead process may have sent what it had not journalled, with its margins
	Claims   time.Time               // before From: since then rows of the sweep may have been sent whose claims stand
	MaxBytes int64                   // of the records of all topics
	MaxTime  time.Duration           // for all topics together
}

// ReadBack is what is known of the topics. Make it with New.
type ReadBack struct {
	cfg     Config
	reader  sink.CommittedReader
	log     *zap.Logger
	metrics *metrics
	seed    maphash.Seed

	ended atomic.Bool

	back    sync.Mutex // guards setBack
	setBack map[outbox.Identity]struct{}

	// One call reads at a time, and the others wait for it: it is over in MaxTime. Its turn guards the next fields.
	turn  *semaphore.Weighted
	spent time.Duration
	parts map[part]*topic

	count sync.Mutex // guards bytes, of several readers
	bytes int64
}

// part is a topic in one period.
type part struct {
	topic   string
	earlier bool // from Claims to From; else from From to To
}

// topic is what was read of a part.
type topic struct {
	found map[key]struct{}
	why   string // it was not read to its end; "" when it was
}

// key identifies a message of a topic.
type key struct {
	messageID string
	body      uint64 // its hash
	size      int
}

type metrics struct {
	found, incomplete prometheus.Counter
	seconds           prometheus.Histogram
}

// New makes a ReadBack. It does no I/O.
func New(cfg Config, reader sink.CommittedReader, log *zap.Logger, reg prometheus.Registerer) *ReadBack {
	with := promauto.With(reg)
	return &ReadBack{
		cfg: cfg, reader: reader, log: log, seed: maphash.MakeSeed(), turn: semaphore.NewWeighted(1), parts: map[part]*topic{},
		metrics: &metrics{
			found: with.NewCounter(prometheus.CounterOpts{
				Name: "canal_outbox_read_back_found_total", Help: "Rows that a killed process had sent and not journalled: found in their topics and not sent again.",
			}),
			incomplete: with.NewCounter(prometheus.CounterOpts{
				Name: "canal_outbox_read_back_incomplete_total", Help: "Topics that could not be read back as far as needed: the log says why, and how many rows may be copies.",
			}),
			seconds: with.NewHistogram(prometheus.HistogramOpts{
				Name: "canal_outbox_read_back_seconds", Help: "Time for which rows waited for their topics to be read back.", Buckets: []float64{.1, .3, .5, 1, 2, 5, 10},
			}),
		},
	}
}

// Sent reports for each message whether the dead process has sent it. It reads a topic when its first message comes. A topic that cannot be
// read keeps no other from being read; its messages are not sent, as far as is known.
func (b *ReadBack) Sent(ctx context.Context, messages []*outbox.Message) []bool {
	sent := make([]bool, len(messages))
	if b.ended.Load() || b.turn.Acquire(ctx, 1) != nil {
		return sent
	}
	defer b.release()
	for _, earlier := range []bool{false, true} {
		if ours := b.unread(messages, earlier); len(ours) > 0 {
			b.read(ctx, ours)
		}
	}
	found := 0
	b.back.Lock()
	defer b.back.Unlock()
	for i, m := range messages {
		if _, again := b.setBack[m.Identity]; again {
			continue
		}
		if b.cfg.Names(m.Table) && b.found(m.Topic, b.key(m.MessageID, m.Body)) {
			sent[i] = true
			found++
		}
	}
	b.metrics.found.Add(float64(found))
	if found > 0 {
		b.log.Info("rows that the last process had sent and not journalled were found in their topics: they are not sent again", zap.Int("rows", found))
	}
	return sent
}

// unread are the parts to read for messages, with the messages. An earlier part may have a row of the sweep that the other one has not.
func (b *ReadBack) unread(messages []*outbox.Message, earlier bool) map[part]map[key]struct{} {
	ours := map[part]map[key]struct{}{}
	for _, m := range messages {
		p, k := part{m.Topic, earlier}, b.key(m.MessageID, m.Body)
		if b.parts[p] != nil || !b.cfg.Names(m.Table) || earlier && (m.Path == outbox.PathBinlog || !b.cfg.Claims.Before(b.cfg.From) || b.found(m.Topic, k)) {
			continue
		}
		if ours[p] == nil {
			ours[p] = map[key]struct{}{}
		}
		ours[p][k] = struct{}{}
	}
	return ours
}

// found reports whether a part that was read has a message.
func (b *ReadBack) found(name string, k key) bool {
	for _, earlier := range []bool{false, true} {
		if t := b.parts[part{name, earlier}]; t != nil {
			if _, is := t.found[k]; is {
				return true
			}
		}
	}
	return false
}

// SetBack takes rows out of the care that are to be sent again though their topics have them. With more than are kept the care ends.
func (b *ReadBack) SetBack(ids []outbox.Identity) {
	b.back.Lock()
	defer b.back.Unlock()
	if b.ended.Load() {
		return
	}
	if len(b.setBack)+len(ids) > maxSetBack {
		b.log.Warn("so many rows were set back that topics are not read back any more: rows that the last process had sent and not journalled may be sent again")
		b.ended.Store(true)
		return
	}
	if b.setBack == nil {
		b.setBack = map[outbox.Identity]struct{}{}
	}
	for _, id := range ids {
		b.setBack[id] = struct{}{}
	}
}

// End ends the care: no row that comes now can have been sent by the dead process.
func (b *ReadBack) End() {
	b.ended.Store(true)
	if b.turn.TryAcquire(1) {
		b.release()
	}
}

// release ends a turn. What was read is forgotten after the end.
func (b *ReadBack) release() {
	if b.ended.Load() {
		b.parts = map[part]*topic{}
		b.back.Lock()
		b.setBack = nil
		b.back.Unlock()
	}
	b.turn.Release(1)
}

// read reads parts, several at a time, in a turn.
func (b *ReadBack) read(ctx context.Context, ours map[part]map[key]struct{}) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, b.cfg.MaxTime-b.spent)
	defer cancel()
	var readers errgroup.Group
	readers.SetLimit(together)
	for p, rows := range ours {
		t := &topic{found: map[key]struct{}{}}
		b.parts[p] = t
		readers.Go(func() error {
			t.why = b.readPart(limited, p, rows, t.found)
			return nil
		})
	}
	_ = readers.Wait() // each says why in its topic
	if ctx.Err() != nil {
		for p := range ours { // a stop is no answer
			delete(b.parts, p)
		}
		return
	}
	took := time.Since(began)
	b.spent += took
	b.metrics.seconds.Observe(took.Seconds())
	for p, rows := range ours {
		if why := b.parts[p].why; why != "" {
			b.metrics.incomplete.Inc()
			maybe := 0
			for k := range rows {
				if !b.found(p.topic, k) {
					maybe++
				}
			}
			b.log.Warn("a topic could not be read back for what the last process has sent: rows that are sent now may be copies",
				zap.String("topic", p.topic), zap.Int("rows", maybe), zap.String("why", why))
		}
	}
}

var errBytes = errors.New("read_back.max_bytes is reached")

// readPart reads a part to its end and makes sure that what it has found is as safe as acknowledged messages; else nothing is found. It
// returns why it did not get there.
func (b *ReadBack) readPart(ctx context.Context, p part, ours, found map[key]struct{}) string {
	why, safe := b.readToEnd(ctx, p, ours, found)
	if safe {
		return why
	}
	if err := b.reader.Committed(ctx, p.topic); err != nil {
		clear(found)
		return cmp.Or(why, err.Error())
	}
	return why
}

// readToEnd reads until a look shows no further message of ours. Before such a look it waits a while, and until the reader says that it is
// complete. It returns why it did not get there, and whether all that was found is as safe as acknowledged messages.
func (b *ReadBack) readToEnd(ctx context.Context, p part, ours, found map[key]struct{}) (why string, safe bool) {
	for known, all := -1, 0; ; all = len(found) {
		if why = b.look(ctx, p, found); why != "" {
			return why, false
		}
		now := 0
		for k := range ours {
			if _, is := found[k]; is {
				now++
			}
		}
		if now == known {
			return "", len(found) == all
		}
		known = now
		if err := b.reader.Committed(ctx, p.topic); err != nil && ctx.Err() == nil {
			return err.Error(), false
		}
		if !outbox.Wait(ctx, still, nil) {
			return b.tooLong(), false
		}
	}
}

// look reads a part once. It returns why that is not all.
func (b *ReadBack) look(ctx context.Context, p part, found map[key]struct{}) string {
	from, to := b.cfg.From, b.cfg.To
	if p.earlier {
		from, to = b.cfg.Claims, b.cfg.From
	}
	extent, err := b.reader.Read(ctx, p.topic, from, to, func(r sink.Record) error {
		k := b.key(r.MessageID, r.Body)
		if _, again := found[k]; again {
			return nil
		}
		if !b.within(len(r.MessageID) + len(r.Body)) {
			return errBytes
		}
		if r.MessageID != "" && !r.Transactional { // one of a transaction may have been aborted
			found[k] = struct{}{}
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return b.tooLong()
	case err != nil:
		return err.Error()
	case extent.Compacted:
		return "it is compacted: records may be gone that were there"
	case extent.Shortened:
		return "its retention has removed records of that time"
	}
	return ""
}

func (b *ReadBack) tooLong() string {
	return fmt.Sprintf("it took longer than read_back.max_time (%s)", b.cfg.MaxTime)
}

// within counts bytes that were read, and reports whether they are within the bound.
func (b *ReadBack) within(n int) bool {
	b.count.Lock()
	defer b.count.Unlock()
	b.bytes += int64(n)
	return b.bytes <= b.cfg.MaxBytes
}

func (b *ReadBack) key(messageID string, body []byte) key {
	return key{messageID, maphash.Bytes(b.seed, body), len(body)}
}
