package bench

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// tailEnv makes the test binary a process that only reads the log and produces, as a tool for change data does: a Tail as JSON.
const tailEnv = "BENCH_TAIL"

// Tail is what such a process reads, and where it produces to.
type Tail struct {
	Database, Schema, Broker string
	From                     outbox.Position
	Want                     int // after this number of rows is acknowledged it says so, by a line; it continues
}

// tail is that process, until it is killed.
func tail(spec string) error {
	var t Tail
	if err := json.Unmarshal([]byte(spec), &t); err != nil {
		return err
	}
	db, err := sql.Open("mysql", "root@tcp("+t.Database+")/"+t.Schema)
	if err != nil {
		return err
	}
	mapped, err := mapTable(context.Background(), db, t.Schema+"."+preset)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	out, err := (&kafka.Section{Brokers: []string{t.Broker}}).Open(sink.Limits{Messages: unwritten, Bytes: 1 << 30}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	to := &bareDrain{out: out, free: semaphore.NewWeighted(unwritten), acknowledged: make(chan outbox.Completion, unwritten)}
	go func() {
		for left := t.Want; ; {
			n := len(to.gather())
			to.free.Release(int64(n))
			if left -= n; left <= 0 && left+n > 0 {
				_, _ = os.Stdout.WriteString("\n") // an error is seen as a line that does not come
			}
		}
	}()
	reader := canal.New(canal.Config{Server: server.Config{Address: t.Database, User: "root"}, Tables: []*table.Table{mapped}}, to, zap.NewNop(), prometheus.NewRegistry())
	return reader.Run(context.Background(), t.From)
}

// startTail starts a process that only tails and produces, from a position. reached gets a nil error when want rows
// are acknowledged; end ends it.
func (f *fixture) startTail(b testing.TB, from outbox.Position, want int) (reached <-chan error, end func()) {
	b.Helper()
	spec, err := json.Marshal(Tail{
		Database: f.db.Addr(), Schema: f.table.Schema, Broker: f.broker.(relay.Kafka).Addr(), From: from, Want: want,
	})
	testkit.Must(b, err)
	program, err := os.Executable()
	testkit.Must(b, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), tailEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	testkit.Must(b, err)
	testkit.Must(b, cmd.Start())
	lines := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(stdout).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = errors.New("the process that tails has ended")
		}
		lines <- err
	}()
	return lines, func() {
		b.Helper()
		testkit.Must(b, cmd.Process.Kill())
		_ = cmd.Wait() // its error says that it was killed
	}
}
