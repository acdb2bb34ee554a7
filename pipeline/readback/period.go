package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
)

// period is what is known of the topics in a time.
type period struct {
	*ReadBack
	from, to time.Time

	// One call reads at a time, and the others wait for it: it is over in MaxTime. The lock guards the next fields.
	lock   *semaphore.Weighted
	spent  time.Duration
	topics map[string]*topic

	count sync.Mutex // guards bytes, of several readers
	bytes int64
}

// topic is what was read of a topic.
type topic struct {
	found map[key]struct{}
	why   string // it was not read to its end; "" when it was
}

func newPeriod(b *ReadBack, from, to time.Time) *period {
	return &period{ReadBack: b, from: from, to: to, lock: semaphore.NewWeighted(1), topics: map[string]*topic{}}
}

// sent reports for each message whether its topic has it. A topic is read when its first message comes.
func (p *period) sent(ctx context.Context, messages []*outbox.Message) []bool {
	sent := make([]bool, len(messages))
	if len(messages) == 0 || p.ended.Load() || p.lock.Acquire(ctx, 1) != nil {
		return sent
	}
	defer p.release()
	ours := map[string]map[key]struct{}{} // of topics that were not read
	for _, m := range messages {
		if p.topics[m.Topic] != nil {
			continue
		}
		if ours[m.Topic] == nil {
			ours[m.Topic] = map[key]struct{}{}
		}
		ours[m.Topic][p.key(m.MessageID, m.Body)] = struct{}{}
	}
	if len(ours) > 0 {
		p.read(ctx, ours)
	}
	for i, m := range messages {
		if t := p.topics[m.Topic]; t != nil {
			_, sent[i] = t.found[p.key(m.MessageID, m.Body)]
		}
	}
	return sent
}

// forget forgets what was read. A call that reads does so itself.
func (p *period) forget() {
	if p.lock.TryAcquire(1) {
		p.release()
	}
}

// release releases the lock.
func (p *period) release() {
	if p.ended.Load() {
		p.topics = map[string]*topic{}
	}
	p.lock.Release(1)
}

// read reads topics, several at a time, under the lock.
func (p *period) read(ctx context.Context, ours map[string]map[key]struct{}) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, p.cfg.MaxTime-p.spent)
	defer cancel()
	var readers errgroup.Group
	readers.SetLimit(together)
	for name, rows := range ours {
		t := &topic{found: map[key]struct{}{}}
		p.topics[name] = t
		readers.Go(func() error {
			t.why = p.readTopic(limited, name, rows, t.found)
			return nil
		})
	}
	_ = readers.Wait() // each says why in its topic
	if ctx.Err() != nil {
		for name := range ours { // a stop is no answer
			delete(p.topics, name)
		}
		return
	}
	took := time.Since(began)
	p.spent += took
	p.metrics.seconds.Observe(took.Seconds())
	for name, rows := range ours {
		if t := p.topics[name]; t.why != "" {
			p.metrics.incomplete.Inc()
			maybe := 0
			for k := range rows {
				if _, found := t.found[k]; !found {
					maybe++
				}
			}
			p.log.Warn("a topic could not be read back for what the last process has sent: rows that are sent now may be copies",
				zap.String("topic", name), zap.Int("rows", maybe), zap.String("why", t.why))
		}
	}
}

var errBytes = errors.New("read_back.max_bytes is reached")

// readTopic reads a topic to its end and makes sure that what it has found is as safe as acknowledged messages; else nothing is found. It
// returns why it did not get there.
func (p *period) readTopic(ctx context.Context, name string, ours, found map[key]struct{}) string {
	why, safe := p.readToEnd(ctx, name, ours, found)
	if safe { // Committed is not asked twice for the same
		return why
	}
	if err := p.reader.Committed(ctx, name); err != nil {
		clear(found)
		return cmp.Or(why, err.Error())
	}
	return why
}

// readToEnd reads until a look shows no further message of ours. Before such a look it waits a while, and until the reader says that it is
// complete. It returns why it did not get there, and whether all that was found is as safe as acknowledged messages.
func (p *period) readToEnd(ctx context.Context, name string, ours, found map[key]struct{}) (why string, safe bool) {
	for known, all := -1, 0; ; all = len(found) {
		if why = p.look(ctx, name, found); why != "" {
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
		err := p.reader.Committed(ctx, name)
		if err != nil {
			clear(found)
		}
		switch {
		case ctx.Err() != nil || err == nil && !outbox.Wait(ctx, still, nil):
			return p.tooLong(), true
		case err != nil:
			return err.Error(), true
		}
	}
}

// look reads a topic once, the newest part first: what is beyond the bound is then what a dead process has sent least probably. It returns why that is
// not all; what is only known to be incomplete is read to its end.
func (p *period) look(ctx context.Context, name string, found map[key]struct{}) (why string) {
	for to, span := p.to, newest; p.from.Before(to); span *= 2 {
		from := to.Add(-span)
		if from.Before(p.from) {
			from = p.from
		}
		extent, err := p.lookAt(ctx, name, from, to, found)
		switch {
		case ctx.Err() != nil:
			return p.tooLong()
		case err != nil:
			return err.Error()
		case extent.Compacted:
			why = "it is compacted: records may be gone that were there"
		case extent.Shortened:
			why = "its retention has removed records of that time"
		}
		to = from
	}
	return why
}

// lookAt reads what a topic has of a time.
func (p *period) lookAt(ctx context.Context, name string, from, to time.Time, found map[key]struct{}) (sink.Extent, error) {
	return p.reader.Read(ctx, name, from, to, func(r sink.Record) error {
		k := p.key(r.MessageID, r.Body)
		if _, again := found[k]; again {
			return nil
		}
		if !p.within(len(r.MessageID) + len(r.Body)) {
			return errBytes
		}
		if r.MessageID != "" && !r.Transactional { // one of a transaction may have been aborted
			found[k] = struct{}{}
		}
		return nil
	})
}

func (p *period) tooLong() string {
	return fmt.Sprintf("it took longer than read_back.max_time (%s)", p.cfg.MaxTime)
}

// within counts bytes that were read, and reports whether they are within the bound.
func (p *period) within(n int) bool {
	p.count.Lock()
	defer p.count.Unlock()
	p.bytes += int64(n)
	return p.bytes <= p.cfg.MaxBytes
}
