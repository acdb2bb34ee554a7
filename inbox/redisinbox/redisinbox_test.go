package redisinbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/inbox/redisinbox"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("INBOX_CRASH"); addr != "" {
		crash(addr)
	}
	testkit.Main(m)
}

// crash is the consumer of TestACrashFreesTheMessage: it is killed while it handles the message.
func crash(addr string) {
	box, err := redisinbox.New(redis.NewClient(&redis.Options{Addr: addr}), "crash", redisinbox.Options{Processing: crashProcessing})
	if err == nil {
		_, err = box.Once(context.Background(), "a", func(context.Context) error {
			if err := os.WriteFile(os.Getenv("INBOX_CRASH_FILE"), nil, 0o600); err != nil {
				return err
			}
			select {}
		})
	}
	fmt.Println(err)
	os.Exit(1)
}

const crashProcessing = 2 * time.Second

func client(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: testkit.SharedRedis(t).Addr()})
	t.Cleanup(func() { testkit.Must(t, c.Close()) })
	return c
}

// box is an inbox of a consumer of this test alone.
func box(t *testing.T, c redis.Cmdable, options redisinbox.Options) *redisinbox.Inbox {
	t.Helper()
	b, err := redisinbox.New(c, t.Name(), options)
	testkit.Must(t, err)
	return b
}

func nothing(context.Context) error { return nil }

func want(t *testing.T, wantRan bool, ran bool, err error) {
	t.Helper()
	if ran != wantRan || err != nil {
		t.Errorf("it ran: %v, want %v; %v", ran, wantRan, err)
	}
}

// A message is handled once, by each consumer, and counts as handled for seven days.
func TestACopyIsNotHandledAgain(t *testing.T) {
	c := client(t)
	b := box(t, c, redisinbox.Options{})
	ran, err := b.Once(t.Context(), "order:1", nothing)
	want(t, true, ran, err)
	ran, err = b.Once(t.Context(), "order:1", func(context.Context) error {
		t.Error("it was handled again")
		return nil
	})
	want(t, false, ran, err)
	other, err := redisinbox.New(c, t.Name()+"-other", redisinbox.Options{})
	testkit.Must(t, err)
	ran, err = other.Once(t.Context(), "order:1", nothing)
	want(t, true, ran, err)
	left, err := c.PTTL(t.Context(), "inbox:"+t.Name()+":order:1").Result()
	if week := 7 * 24 * time.Hour; err != nil || left > week || left < week-time.Hour {
		t.Errorf("the mark lasts for %v, %v", left, err)
	}
	if ran, err := b.Once(t.Context(), "", nothing); ran || err == nil {
		t.Errorf("without a message id it ran: %v, %v", ran, err)
	}
}

// When the handler fails, by an error, a panic or because its time is over, the next copy is handled.
func TestAFailureFreesTheMessage(t *testing.T) {
	b := box(t, client(t), redisinbox.Options{})
	refused := errors.New("no such order")
	if ran, err := b.Once(t.Context(), "a", func(context.Context) error { return refused }); !ran || !errors.Is(err, refused) {
		t.Errorf("it ran: %v, %v", ran, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = b.Once(t.Context(), "a", func(context.Context) error { panic("a bug") })
	}()
	// The consumer is stopped while it works.
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.Once(ctx, "a", func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	ran, err := b.Once(t.Context(), "a", nothing)
	want(t, true, ran, err)
}

// What was handled counts as handled, though the consumer was stopped meanwhile.
func TestAStopDoesNotForget(t *testing.T) {
	b := box(t, client(t), redisinbox.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ran, err := b.Once(ctx, "a", func(context.Context) error {
		cancel()
		return nil
	})
	want(t, true, ran, err)
	ran, err = b.Once(t.Context(), "a", nothing)
	want(t, false, ran, err)
}

// Of many copies at the same time one is handled; the others are told to come again.
func TestCopiesAtTheSameTime(t *testing.T) {
	b := box(t, client(t), redisinbox.Options{})
	var handled, busy atomic.Int32
	var all sync.WaitGroup
	release := make(chan struct{})
	for range 20 {
		all.Go(func() {
			_, err := b.Once(t.Context(), "a", func(context.Context) error {
				handled.Add(1)
				<-release
				return nil
			})
			switch {
			case errors.Is(err, redisinbox.ErrBusy):
				if busy.Add(1) == 19 {
					close(release)
				}
			case err != nil:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if handled.Load() != 1 {
		t.Errorf("it was handled %d times", handled.Load())
	}
	ran, err := b.Once(t.Context(), "a", nothing)
	want(t, false, ran, err)
}

// A handler that returns after its claim expired does not release the claim of another handler.
func TestALateHandlerGivesNothingAway(t *testing.T) {
	c := client(t)
	b := box(t, c, redisinbox.Options{Processing: 50 * time.Millisecond})
	key := "inbox:" + t.Name() + ":a"
	late := errors.New("late")
	_, err := b.Once(t.Context(), "a", func(ctx context.Context) error {
		<-ctx.Done() // its time ends with its claim
		testkit.WaitFor(t, time.Minute, "the claim to end", func() bool { return c.Exists(t.Context(), key).Val() == 0 })
		testkit.Must(t, c.Set(t.Context(), key, "of another", time.Hour).Err())
		return late
	})
	if !errors.Is(err, late) {
		t.Errorf("%v", err)
	}
	if value := c.Get(t.Context(), key).Val(); value != "of another" {
		t.Errorf("the claim of the other is %q", value)
	}
	if _, err := b.Once(t.Context(), "a", nothing); !errors.Is(err, redisinbox.ErrBusy) {
		t.Errorf("%v", err)
	}
}

// The claim of a consumer that was killed ends by itself, not before.
func TestACrashFreesTheMessage(t *testing.T) {
	c := client(t)
	reached := filepath.Join(t.TempDir(), "reached")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "INBOX_CRASH="+testkit.SharedRedis(t).Addr(), "INBOX_CRASH_FILE="+reached)
	process, err := testkit.Launch(cmd, filepath.Join(t.TempDir(), "log"))
	testkit.Must(t, err)
	testkit.WaitFor(t, time.Minute, "the consumer to handle the message", func() bool {
		_, err := os.Stat(reached)
		return err == nil
	})
	testkit.Must(t, process.Kill())
	left := c.PTTL(t.Context(), "inbox:crash:a").Val()
	if left > crashProcessing || left <= 0 {
		t.Errorf("the claim lasts for %v", left)
	}
	b, err := redisinbox.New(c, "crash", redisinbox.Options{})
	testkit.Must(t, err)
	testkit.WaitFor(t, time.Minute, "the claim to end", func() bool {
		claimed := c.Exists(t.Context(), "inbox:crash:a").Val() == 1
		ran, err := b.Once(t.Context(), "a", nothing)
		if ran && err == nil {
			return true
		}
		if !errors.Is(err, redisinbox.ErrBusy) {
			t.Fatalf("claimed: %v; it ran: %v, %v", claimed, ran, err)
		}
		return false
	})
}

// Without Redis nothing is handled; when it goes away behind the handler, the caller gets an error.
func TestRedisGoesAway(t *testing.T) {
	server, err := testkit.StartRedis(t.Context())
	testkit.Must(t, err)
	defer server.Close()
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer c.Close()
	b := box(t, c, redisinbox.Options{})
	ran, err := b.Once(t.Context(), "a", func(context.Context) error { return server.Kill() })
	if !ran || err == nil || !strings.Contains(err.Error(), "could not be recorded") {
		t.Errorf("it ran: %v, %v", ran, err)
	}
	if ran, err := b.Once(t.Context(), "b", nothing); ran || err == nil {
		t.Errorf("without Redis it ran: %v, %v", ran, err)
	}
}

func TestNewRefuses(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	for _, bad := range []struct {
		client   redis.Cmdable
		consumer string
		options  redisinbox.Options
	}{
		{nil, "a", redisinbox.Options{}},
		{c, "", redisinbox.Options{}},
		{c, "a", redisinbox.Options{Processing: -1}},
		{c, "a", redisinbox.Options{Processing: time.Hour, Keep: time.Minute}},
	} {
		if _, err := redisinbox.New(bad.client, bad.consumer, bad.options); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
