package testkit

import (
	"fmt"
	"strings"
	"testing"
)

// recorder is a T that notes a failure and runs its cleanups on request.
type recorder struct {
	T
	failure  string
	cleanups []func()
}

func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func TestCheckLeaksFindsALeak(t *testing.T) {
	r := &recorder{T: t}
	CheckLeaks(r)
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	r.cleanups[0]()
	if !strings.Contains(r.failure, "leak") {
		t.Fatalf("a leaking goroutine gave %q", r.failure)
	}
}

func TestServersAndProxyLeaveNoGoroutine(t *testing.T) {
	CheckLeaks(t)
	d := NewDatabase(t, DatabaseOptions{Flavor: MariaDB})
	p := NewProxy(t, d.Addr())
	expectPacket := make([]byte, 4)
	if _, err := dial(t, p.Addr()).Read(expectPacket); err != nil {
		t.Fatal(err)
	}
	p.Hole(true)
	dial(t, p.Addr())
	Exec(t, d.Connect(t, d.CreateSchema(t)), "CREATE TABLE t (id INT)")
}

func TestSharedServerAndKafkaClientLeaveNoGoroutine(t *testing.T) {
	startsServers(t)
	d, k := SharedMariaDB(t), SharedKafka(t)
	CheckLeaks(t)
	d.CreateSchema(t)
	Must(t, k.ping(t.Context()))
}
