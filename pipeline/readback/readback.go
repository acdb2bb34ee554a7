// Package readback reads from the topics what a process that was killed has sent and not journalled, so that its rows are not sent again.
//
// Guarantee: a row counts as sent only if a record with its message id and its body is in its topic, within the period in which a dead
// process may have sent it, and the message id is of a table in which it names one message: an equal number of another table is no proof.
// Reading begins with the newest records and ends at its bounds of bytes and time, and on any error; a row that was not found is sent, as
// without this package. A record that is appended after the last look is missed: then the row is sent twice.
//
// A row of the log was sent since the checkpoint of the last process passed it. A row of the sweep waits until the claim of a dead process
// expires, and meanwhile another process may have come and been killed: so for such rows an earlier period is read, too.
//
// The package owns no goroutine beyond a call. Its methods may be called from several goroutines.
package readback

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

const (
	still      = 300 * time.Millisecond // between two looks of which the second shows nothing more of ours
	together   = 8                      // topics that are read at a time
	newest     = 5 * time.Second        // of a period, read first; each further part is twice as long
	maxSetBack = 100_000                // rows in memory, about 200 bytes each
)

// probeTimeout ends a question whether the broker answers.
const probeTimeout = 3 * time.Second

// Config is what to read.
type Config struct {
	Names    func(table string) bool // whether a message id of the table names one message; rows of other tables are not looked for
	From, To time.Time               // the period in which the dead process may have sent what it had not journalled, with its margins
	Claims   time.Time               // before From: since then rows of the sweep may have been sent whose claims stand
	MaxBytes int64                   // of the records of all topics, in each of the two periods
	MaxTime  time.Duration           // for all topics together, likewise
}

// ReadBack is what is known of the topics. Make it with New.
type ReadBack struct {
	cfg     Config
	reader  sink.CommittedReader
	log     *zap.Logger
	metrics *metrics
	seed    maphash.Seed

	reached atomic.Bool // the broker has answered
	missed  atomic.Bool // it did not when it was asked first, and that was logged
	ended   atomic.Bool
	claimed atomic.Bool // of the rows of sweeps only claimed and untouched ones are looked for

	back    sync.Mutex // guards setBack
	setBack map[outbox.Identity]struct{}

	last    *period
	earlier *period // nil: no claim may stand
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
	b := &ReadBack{
		cfg: cfg, reader: reader, log: log, seed: maphash.MakeSeed(),
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
	b.last = newPeriod(b, cfg.From, cfg.To)
	if cfg.Claims.Before(cfg.From) {
		b.earlier = newPeriod(b, cfg.Claims, cfg.From)
	}
	return b
}

// Ready returns an error while the broker has not answered since the start, which is outbox.ErrBrokerAway or that of ctx. A broker that died with the
// killed process may come back later than this one: nothing can be sent meanwhile, and what is in its topics can be read when it is back.
func (b *ReadBack) Ready(ctx context.Context) error {
	if b.ended.Load() || b.reached.Load() {
		return nil
	}
	probing, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := b.reader.Reachable(probing)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		if !b.missed.Swap(true) {
			b.log.Warn("the broker does not answer: rows that the last process may have sent wait until their topics can be read", zap.Error(err))
		}
		return fmt.Errorf("%w: %w", outbox.ErrBrokerAway, err)
	case !b.reached.Swap(true) && b.missed.Load():
		b.log.Info("the broker answers: topics are read for what the last process has sent")
	}
	return nil
}

// Sent reports for each message whether the dead process has sent it. It reads a topic when its first message comes. A topic that cannot be
// read keeps no other from being read; its messages are not sent, as far as is known.
func (b *ReadBack) Sent(ctx context.Context, messages []*outbox.Message) []bool {
	sent := make([]bool, len(messages))
	b.mark(ctx, b.last, messages, sent, func(*outbox.Message) bool { return true })
	if b.earlier != nil {
		b.mark(ctx, b.earlier, messages, sent, func(m *outbox.Message) bool { return m.Path != outbox.PathBinlog })
	}
	found := 0
	for _, is := range sent {
		if is {
			found++
		}
	}
	b.metrics.found.Add(float64(found))
	if found > 0 {
		b.log.Info("rows that the last process had sent and not journalled were found in their topics: they are not sent again", zap.Int("rows", found))
	}
	return sent
}

// mark marks messages that a period has, of those that it may have. Rows that were set back are not looked for. That is known before the
// reading, because End forgets it; a row whose message is here is under way and not set back meanwhile, see relay.Relay.SetBack.
func (b *ReadBack) mark(ctx context.Context, p *period, messages []*outbox.Message, sent []bool, may func(*outbox.Message) bool) {
	var rest []*outbox.Message
	var at []int
	b.back.Lock()
	for i, m := range messages {
		if b.claimed.Load() && m.Path != outbox.PathBinlog && m.Status != outbox.Sending && !m.Untouched {
			continue
		}
		if _, again := b.setBack[m.Identity]; !again && !sent[i] && b.cfg.Names(m.Table) && may(m) {
			rest, at = append(rest, m), append(at, i)
		}
	}
	ended := b.ended.Load() // and what was set back may be forgotten
	b.back.Unlock()
	if ended {
		return
	}
	for i, found := range p.sent(ctx, rest) {
		sent[at[i]] = found
	}
}

// SetBack excludes rows that are to be sent again though their topics have them. With more than maxSetBack rows the search ends.
func (b *ReadBack) SetBack(ids []outbox.Identity) {
	b.back.Lock()
	defer b.back.Unlock()
	if b.ended.Load() {
		return
	}
	if len(b.setBack)+len(ids) > maxSetBack {
		b.log.Warn("too many rows were set back, so topics are not read back any more: rows that the last process had sent and not journalled may be sent again")
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

// OnlyClaimed ends the search for rows of sweeps that no process had claimed: a claim may be valid for long, but a row that is PENDING so
// late may be one that a person has set back. A row that shows that no status was ever written (Untouched) was not set back.
func (b *ReadBack) OnlyClaimed() { b.claimed.Store(true) }

// End ends the search: no row that comes now can have been sent by the killed process. What was read is dropped.
func (b *ReadBack) End() {
	b.ended.Store(true)
	b.last.forget()
	if b.earlier != nil {
		b.earlier.forget()
	}
	b.back.Lock()
	b.setBack = nil
	b.back.Unlock()
}

// Ended reports whether End was called.
func (b *ReadBack) Ended() bool { return b.ended.Load() }

func (b *ReadBack) key(messageID string, body []byte) key {
	return key{messageID, maphash.Bytes(b.seed, body), len(body)}
}
