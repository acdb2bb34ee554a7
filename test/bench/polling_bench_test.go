package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

const (
	pollers   = 200
	pollEvery = time.Second // like the page
)

// BenchmarkPolling measures the effect of status requests on messages: the latency of 500 rows per second alternately without and
// with 200 clients that request the status each second, and the relay's CPU per answer.
func BenchmarkPolling(b *testing.B) {
	listen := testkit.FreeAddress(b)
	f := newFixture(b, testkit.MySQL, "fake", fmt.Sprintf("admin: {listen: %q}", listen))
	f.warm(b, 2_000, 500)
	const n, repeats = 4_000, 5
	for b.Loop() {
		var alone, during []float64 // 99th percentiles, in milliseconds
		var cpu [2]time.Duration
		var answers int64
		for range repeats {
			p99, used := f.latency(b, n)
			alone, cpu[0] = append(alone, p99), cpu[0]+used
			enough := poll(b, listen)
			p99, used = f.latency(b, n)
			answers += enough()
			during, cpu[1] = append(during, p99), cpu[1]+used
		}
		slices.Sort(alone)
		slices.Sort(during)
		b.ReportMetric(alone[repeats/2], "p99-ms-alone")
		b.ReportMetric(during[repeats/2], "p99-ms-during")
		b.ReportMetric(during[repeats/2]/alone[repeats/2], "p99-ratio")
		b.ReportMetric(float64(cpu[0].Microseconds())/repeats/n, "cpu-µs/msg-alone")
		b.ReportMetric(float64((cpu[1]-cpu[0]).Microseconds())/float64(max(answers, 1)), "cpu-µs/answer")
		b.ReportMetric(float64(answers)/repeats, "answers/repeat")
	}
}

// latency commits rows and returns the 99th percentile from commit to acknowledgement, and the relay's CPU.
func (f *fixture) latency(b *testing.B, n int) (p99 float64, cpu time.Duration) {
	b.Helper()
	const name = "publish_latency_seconds"
	before, used := f.histogram(b, name), f.usage(b)
	f.pace(b, n, 500)
	f.awaitSent(b)
	now := f.usage(b)
	return percentile(.99, before, f.histogram(b, name)), now.cpu - used.cpu
}

// poll runs the clients until enough is called, which returns the number of their answers.
func poll(b *testing.B, listen string) (enough func() int64) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pollers}}
	var answers atomic.Int64
	var group sync.WaitGroup
	for i := range pollers {
		group.Go(func() {
			late := time.NewTimer(pollEvery * time.Duration(i) / pollers) // not all at the same time
			defer late.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-late.C:
					late.Reset(pollEvery)
				}
				response, err := client.Get("http://" + listen + "/api/v1/status")
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
					b.Errorf("status %d, %v", response.StatusCode, err)
				}
				_ = response.Body.Close()
				answers.Add(1)
			}
		})
	}
	return func() int64 {
		stop()
		group.Wait()
		client.CloseIdleConnections()
		return answers.Load()
	}
}
