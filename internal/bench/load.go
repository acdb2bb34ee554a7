package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

const (
	writers        = 8   // connections that commit rows one by one
	fillers        = 4   // connections that write the backlog
	perTransaction = 10  // rows of the backlog
	keys           = 997 // of the rows, so that they spread over partitions and queues
)

// commit is what the application sees of one transaction.
type commit struct {
	returned time.Time
	took     time.Duration
}

// pace commits n rows one by one at the rate that was asked for, or as fast as the database takes them.
func (r *run) pace(ctx context.Context, n int) ([]commit, error) {
	commits, first := make([]commit, n), r.rows
	r.rows += n
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	limit := rate.NewLimiter(rate.Limit(r.opts.Rate), 1)
	for i := 0; i < n && limit.Wait(working) == nil; i++ {
		group.Go(func() error {
			began := time.Now()
			err := r.insert(working, first+i, 1)
			commits[i] = commit{returned: time.Now(), took: time.Since(began)}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return commits, context.Cause(ctx)
}

// fill commits n rows in small transactions.
func (r *run) fill(ctx context.Context, n int) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for left := n; left > 0 && working.Err() == nil; left -= perTransaction {
		first, size := r.rows, min(left, perTransaction)
		r.rows += size
		group.Go(func() error { return r.insert(working, first, size) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// insert commits the rows first, first+1, .. in one transaction. Their numbers are their business keys.
func (r *run) insert(ctx context.Context, first, n int) error {
	const columns = "(?, ?, ?, ?, ?)"
	values := make([]any, 0, 5*n)
	for i := range n {
		values = append(values, bizType, strconv.Itoa(first+i), r.opts.Topic, strconv.Itoa((first+i)%keys), body(r.opts.Body))
	}
	query := "INSERT INTO " + quoted(r.opts.Table) + " (biz_type, biz_key, topic, sharding_key, message_body) VALUES " +
		strings.TrimSuffix(strings.Repeat(columns+", ", n), ", ")
	if _, err := r.db.ExecContext(ctx, query, values...); err != nil {
		return r.because(ctx, fmt.Errorf("insert into %s: %w", r.opts.Table, err))
	}
	return nil
}

// body makes text that does not compress to nothing.
func body(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(strconv.FormatUint(rand.Uint64(), 36))
	}
	return b.String()[:size]
}

// quoted is a name schema.table for a statement.
func quoted(name string) string {
	parts := strings.SplitN(strings.ReplaceAll(name, "`", "``"), ".", 2)
	return "`" + strings.Join(parts, "`.`") + "`"
}

// times are the percentiles of a list, which they sort.
func times(list []time.Duration) Times {
	slices.Sort(list)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return Times{P50: ms(list[len(list)/2]), P99: ms(list[len(list)*99/100]), Max: ms(list[len(list)-1])}
}

// processTime is the CPU time that this process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it fails for an unknown argument only
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
