package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// share is a number, or with -short a tenth of it: a quick check that everything works.
func share(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// load is an application that writes rows into a table.
type load struct {
	table *relay.Table
	topic string
	next  int // number of the last row
}

// rows returns the next n rows, with 500-byte bodies that compress badly.
func (l *load) rows(n int) []relay.Row {
	out := make([]relay.Row, n)
	for i := range out {
		l.next++
		body := bytes.Repeat([]byte(strconv.Itoa(l.next*2654435761)+"|"), bodySize/8)[:bodySize]
		out[i] = relay.Row{BizType: "order", Key: fmt.Sprint("k", l.next), ShardingKey: fmt.Sprint(l.next % keys), Topic: l.topic, Tag: "paid", Body: body}
	}
	return out
}

// fill commits n rows in transactions of size, over four connections.
func (l *load) fill(b testing.TB, n, size int) {
	b.Helper()
	work := make(chan []relay.Row)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for rows := range work {
				if err := l.table.Insert(context.Background(), l.table.DB, rows...); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for left := n; left > 0; left -= size {
		work <- l.rows(min(size, left))
	}
	close(work)
	group.Wait()
}

// pace commits rows one by one at a rate, over eight connections. It returns the rows, the return times of their INSERTs, and the
// durations of these.
func (l *load) pace(b testing.TB, n int, perSecond rate.Limit) (rows []relay.Row, committed []time.Time, took []time.Duration) {
	limit := rate.NewLimiter(perSecond, 1)
	slots := make(chan struct{}, 8)
	rows, committed, took = l.rows(n), make([]time.Time, n), make([]time.Duration, n)
	for i, row := range rows {
		testkit.Must(b, limit.Wait(context.Background()))
		slots <- struct{}{}
		go func() {
			defer func(began time.Time) {
				committed[i], took[i] = time.Now(), time.Since(began)
				<-slots
			}(time.Now())
			if err := l.table.Insert(context.Background(), l.table.DB, row); err != nil {
				b.Error(err)
			}
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	return rows, committed, took
}
