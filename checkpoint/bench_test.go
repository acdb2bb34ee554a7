package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// The simulation opens, commits, crashes and reopens in a bubble with virtual time, tens of thousands of times. Nothing in
// the store may keep a goroutine behind or wake up by the clock.
func TestStoreInABubble(t *testing.T) {
	for run := range uint64(200 / effort) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(run, 9))
			disk := vfs.NewCrashableMem()
			var now contents
			for life := range uint64(5) {
				s := openMem(t, disk)
				if got := read(t, s); !same(got, now) {
					t.Fatalf("run %d, life %d starts with\n%+v\nwant\n%+v", run, life, got, now)
				}
				now.generation = 0
				for _, step := range script(rng, life, 10) {
					time.Sleep(time.Duration(rng.Int64N(int64(time.Hour))))
					fatal(t, step(s, &now))
				}
				disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				fatal(t, s.Close())
			}
		})
	}
}

// In a bubble time jumps to the next timer, so a ticker would be run for every tenth of a second of every simulated day.
func TestSimulatedStoreHasNoTicker(t *testing.T) {
	ticking := func(simulated bool) bool {
		s, err := Open(stateDir, Options{FS: vfs.NewMem(), OnFatal: mustNotFail(t), Simulated: simulated})
		fatal(t, err)
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fatal(t, s.Close())
		return bytes.Contains(stacks, []byte("periodicGranter"))
	}
	if ticking(true) {
		t.Error("the engine's compaction ticker runs")
	}
	if !ticking(false) {
		t.Error("the engine has another ticker than this test looks for")
	}
}

// BenchmarkCommit is the fast path's step: n rows sent, the n before written, the checkpoint moved.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 50, 500} {
		for name, files := range map[string]vfs.FS{"disk": nil, "memory": vfs.NewMem()} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s, err := Open(b.TempDir(), Options{FS: files, OnFatal: mustNotFail(b)})
				fatal(b, err)
				sent, written := make([]outbox.Completion, n), make([]outbox.Identity, n)
				next := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					for i := range sent {
						next++
						written[i] = sent[i].Identity
						sent[i].Identity = outbox.Identity{Table: "shop.t_local_message", ID: fmt.Sprint(next), MessageID: fmt.Sprint("order:", next)}
						sent[i].BrokerID = "AC110002000078BFD8A01234567890AB"
					}
					b.StartTimer()
					fatal(b, s.Commit(sent, written, at(uint64(next)), 0))
				}
				fatal(b, s.Close())
			})
		}
	}
}

// BenchmarkLife is what one start and stop costs a simulation: of a new store, and of one that crashed.
func BenchmarkLife(b *testing.B) {
	for _, simulated := range []bool{true, false} {
		options := Options{OnFatal: mustNotFail(b), Simulated: simulated}
		life := func(b *testing.B, disk *vfs.MemFS, offset uint64) {
			options.FS = disk
			s, err := Open(stateDir, options)
			fatal(b, err)
			fatal(b, s.Commit([]outbox.Completion{{Identity: outbox.Identity{Table: "shop.t", ID: "1"}}}, nil, at(offset), 0))
			fatal(b, s.Close())
		}
		b.Run(fmt.Sprintf("new/simulated=%v", simulated), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				life(b, vfs.NewCrashableMem(), 5)
			}
		})
		b.Run(fmt.Sprintf("crashed/simulated=%v", simulated), func(b *testing.B) {
			disk := vfs.NewCrashableMem()
			for i := range uint64(4) {
				life(b, disk, i+5)
			}
			b.ReportAllocs()
			for b.Loop() {
				life(b, disk.CrashClone(vfs.CrashCloneCfg{}), 50)
			}
		})
	}
}
