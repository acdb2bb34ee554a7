package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The whole relay starts and is stopped again and again (START_ROUNDS times), at any time of a start or of its work, while an
// application commits. Each run ends without an error, no goroutine is left, and a clean stop repeats nothing.
//
// It is not parallel: while it runs no other test of the package does, so that every new goroutine is the relay's.
func TestStartAndStopAtAnyMoment(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	if text := os.Getenv("START_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		testkit.Must(t, err)
	}
	l := newLab(t, testkit.SharedDatabase(t, testkit.MariaDB))
	began := time.Now()
	l.start()
	starts := time.Since(began)
	l.stop()
	application := l.session()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	before := goleak.IgnoreCurrent()
	cfg := l.config()

	var want []string
	worked := 0
	began = time.Now()
	for round := range rounds {
		core, logs := observer.New(zapcore.InfoLevel)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- app.Run(ctx, cfg, app.Options{Version: "test"}, zap.New(core)) }()
		until := time.Now().Add(time.Duration(random.Int64N(int64(starts))))
		for i := 0; time.Now().Before(until); i++ {
			key := fmt.Sprintf("r%d-%d", round, i)
			application.exec(insert(key))
			want = append(want, key)
			time.Sleep(time.Millisecond)
		}
		stop()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("round %d ended with: %v", round, err)
			}
		case <-time.After(patience):
			t.Fatalf("round %d does not stop", round)
		}
		// As many stops shall come before the relay works as after, on a machine that is busy now and idle then as well.
		if working := logs.FilterMessageSnippet("stopping").Len(); working > 0 {
			worked++
			starts = starts * 9 / 10
		} else {
			starts = starts * 10 / 9
		}
		for _, line := range logs.FilterLevelExact(zapcore.ErrorLevel).All() {
			t.Errorf("round %d logged: %s %v", round, line.Message, line.ContextMap())
		}
	}
	t.Logf("%d rounds in %v, %d of them until the relay worked, %d rows", rounds, time.Since(began), worked, len(want))
	if worked < rounds/10 || worked > rounds*9/10 {
		t.Errorf("%d of %d runs were stopped at work, the others at their start: too few of one kind", worked, rounds)
	}
	// The broker is in this process too, and sees only some time later that a client is gone.
	var left error
	t.Cleanup(func() {
		if left != nil {
			t.Log(left)
		}
	})
	testkit.WaitFor(t, patience, "no goroutine to be left", func() bool {
		left = goleak.Find(before)
		return left == nil
	})
	l.start()
	l.account(want...)
}
