package redelivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/pipeline/reserved"
)

// maxCounted bounds the rows of all tables whose redeliveries are counted.
const maxCounted = 100_000

// load reads the counts of earlier runs. It drops those of tables that are no longer configured.
func (r *Redelivery) load() error {
	r.counts = map[outbox.Identity]table.Wait{}
	all, err := r.waits.Redeliveries()
	if err != nil {
		return fmt.Errorf("read the counts of redeliveries: %w", err)
	}
	var drop []outbox.Identity
	for _, w := range all {
		switch _, ok := r.cfg.Sent[w.Table]; {
		case !ok:
			drop = append(drop, w.Identity)
		case w.Identity == takenOver(w.Table):
			r.taken[w.Table] = w.Due
		default:
			r.counts[w.Identity] = w.Wait
		}
	}
	if len(drop) > 0 {
		return r.waits.KeepRedeliveries(nil, drop)
	}
	return nil
}

// redeliver processes a page of the SENT rows of a table, and returns the wait until the next time.
func (r *Redelivery) redeliver(ctx context.Context, name string, rule table.Redeliver) time.Duration {
	if !r.flow.Takes() {
		return time.Second
	}
	p, open := r.sentPasses[name]
	if !open {
		p = &sentPass{name: name, rule: rule, seen: map[outbox.Identity]bool{}}
		if _, taken := r.taken[name]; taken {
			p.assumed = rule.Max
		}
		r.sentPasses[name] = p
	}
	err := r.sentPage(ctx, p)
	if err == nil && !p.done() {
		return 0
	}
	delete(r.sentPasses, name)
	return r.sentOutcome(ctx, p, err)
}

// sentOutcome returns the wait after a pass: until the next one, or a pause after an error.
func (r *Redelivery) sentOutcome(ctx context.Context, p *sentPass, err error) time.Duration {
	name := p.name
	if ctx.Err() != nil {
		return 0
	}
	r.sent.update(name, func(s *SentState) {
		if s.Error = ""; err != nil {
			s.Error = err.Error()
			return
		}
		s.GivenUp, s.Full = p.givenUp, p.full
	})
	if err != nil {
		r.metrics.errors.Inc()
		if r.sentFails[name]++; r.sentFails[name] == 1 {
			r.log.Warn("SENT rows that no consumer has finished cannot be sent again for now; retrying", zap.String("table", name), zap.Error(err))
		}
		return retry.Delay(r.sentFails[name]-1, 0.5)
	}
	if r.sentFails[name] > 0 {
		r.log.Info("SENT rows that no consumer has finished are sent again", zap.String("table", name))
		r.sentFails[name] = 0
	}
	r.metrics.givenUp.WithLabelValues(name).Set(float64(p.givenUp))
	if p.published > 0 {
		r.log.Info("SENT rows were sent again, because no consumer has finished them", zap.String("table", name), zap.Int("rows", p.published))
	}
	return lookEvery(p.rule.After)
}

// sentPass is one pass over the SENT rows of a table.
type sentPass struct {
	name      string
	rule      table.Redeliver
	assumed   int // after a take-over: the count that is set at present; 0: the counts are complete
	at        table.Cursor
	seen      map[outbox.Identity]bool // rows that are counted and still SENT
	published int
	givenUp   int
	full      bool
}

func (p *sentPass) done() bool { return p.assumed == 0 && p.at.Done() }

// sentPage processes the next page of a pass.
func (r *Redelivery) sentPage(ctx context.Context, p *sentPass) error {
	if p.assumed > 0 {
		return r.countTakenOver(ctx, p)
	}
	began := time.Now()
	page, next, err := r.page(ctx, p.name, p.at, table.FinalQuery{Status: outbox.Sent, Age: p.rule.After, Limit: pageRows})
	if err != nil {
		return err
	}
	p.at = next
	outbox.Wait(ctx, share*time.Since(began), nil)
	if err := r.again(ctx, p, page); err != nil || !p.done() {
		return err
	}
	var gone []outbox.Identity // final, or no longer SENT
	for id := range r.counts {
		if id.Table == p.name && !p.seen[id] {
			gone = append(gone, id)
		}
	}
	return r.drop(gone)
}

// again sends the due rows of a page again.
func (r *Redelivery) again(ctx context.Context, p *sentPass, page []outbox.Candidate) error {
	var due []outbox.Candidate // in the order of the page
	for _, c := range page {
		w, counted := r.counts[c.Identity]
		switch {
		case counted && time.Until(w.Due) > p.rule.After: // the configuration has changed, or the clock
			w.Due = time.Now()
			fallthrough
		case counted:
			p.seen[c.Identity] = true
			if time.Now().Before(w.Due) {
				break
			}
			if w.Attempts < p.rule.Max || p.rule.Query != "" {
				due = append(due, c)
			}
		case len(r.counts)+len(due) >= r.most:
			p.full = true
		default:
			p.seen[c.Identity] = true
			due = append(due, c)
		}
	}
	due, err := r.ask(ctx, p, due)
	if err != nil {
		return err
	}
	err = r.publish(ctx, p, due)
	for _, c := range page {
		if p.seen[c.Identity] && r.counts[c.Identity].Attempts >= p.rule.Max {
			p.givenUp++
		}
	}
	return err
}

// ask queries the consumers' service, if configured, and returns the rows that it does not report as done; it marks the others.
func (r *Redelivery) ask(ctx context.Context, p *sentPass, due []outbox.Candidate) (open []outbox.Candidate, err error) {
	if p.rule.Query == "" {
		return due, nil
	}
	for rows := range slices.Chunk(due, askRows) {
		ids := make([]outbox.Identity, len(rows))
		for i := range rows {
			ids[i] = rows[i].Identity
		}
		done, err := r.query(ctx, p.rule.Query, p.name, ids)
		if err != nil {
			r.metrics.queryErrors.Inc()
			return nil, fmt.Errorf("ask which messages are done: %w", err)
		}
		if len(done) == 0 {
			open = append(open, rows...)
			continue
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
		n, err := r.rows.MarkDone(bounded, done)
		cancel()
		r.metrics.marked.WithLabelValues(p.name).Add(float64(n))
		r.sent.update(p.name, func(s *SentState) { s.Marked += int(n) })
		if err != nil {
			return nil, err
		}
		for _, c := range rows {
			if slices.Contains(done, c.Identity) {
				delete(p.seen, c.Identity) // the end of the pass removes the count
			} else {
				open = append(open, c)
			}
		}
	}
	return open, nil
}

// publish sends rows to the sink. Each is counted on disk before: a crash may cost a row one of its redeliveries and never adds
// one. A row that cannot be read is left out, and the others are sent.
func (r *Redelivery) publish(ctx context.Context, p *sentPass, due []outbox.Candidate) error {
	next, exhausted := time.Now().Add(p.rule.After), []table.Waiting(nil)
	candidates := make([]outbox.Candidate, 0, len(due))
	for _, c := range due {
		if w := r.counts[c.Identity]; w.Attempts >= p.rule.Max { // asked, but the row may not be sent again
			exhausted = append(exhausted, table.Waiting{Identity: c.Identity, Wait: table.Wait{Due: next, Attempts: w.Attempts}})
			continue
		}
		candidates = append(candidates, c)
	}
	if err := r.keep(exhausted); err != nil || len(candidates) == 0 {
		return err
	}
	free, _ := r.flow.Reserve(candidates)
	_, err := reserved.Publish(ctx, r.flow, free, reserved.Steps{
		Pieces: r.rows.Pieces,
		Read: func(ctx context.Context, ids []outbox.Identity) ([]*outbox.Message, []outbox.Completion, error) {
			messages, err := r.rows.ReadSent(ctx, ids)
			return messages, nil, err
		},
		Before: func(messages []*outbox.Message, _ map[outbox.Identity]outbox.Candidate) error {
			next, counted := time.Now().Add(p.rule.After), make([]table.Waiting, len(messages))
			for i, m := range messages {
				counted[i] = table.Waiting{Identity: m.Identity, Wait: table.Wait{Due: next, Attempts: r.counts[m.Identity].Attempts + 1}}
			}
			return r.keep(counted)
		},
		Taken: func(*outbox.Message, outbox.Candidate) {
			p.published++
			r.metrics.redelivered.WithLabelValues(p.name).Inc()
			r.sent.update(p.name, func(s *SentState) { s.Redelivered++ })
			outbox.Wait(ctx, perRow, nil)
		},
	})
	return err
}

func (r *Redelivery) keep(put []table.Waiting) error {
	if len(put) == 0 {
		return nil
	}
	if err := r.waits.KeepRedeliveries(put, nil); err != nil {
		return fmt.Errorf("count redeliveries: %w", err)
	}
	for _, w := range put {
		r.counts[w.Identity] = w.Wait
	}
	return nil
}

func (r *Redelivery) drop(ids []outbox.Identity) error {
	if len(ids) == 0 {
		return nil
	}
	if err := r.waits.KeepRedeliveries(nil, ids); err != nil {
		return fmt.Errorf("forget redeliveries: %w", err)
	}
	for _, id := range ids {
		delete(r.counts, id)
	}
	return nil
}
