package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// binary is the demo as make builds it, with the relay's binary in the same directory.
var binary string

func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_BINARIES"); dir != "" { // built once for all tests
		binary = filepath.Join(dir, "demo")
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "demo-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "demo")
		if out, err := exec.Command("go", "build", "-o", dir, "../../cmd/canal-outbox", ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// running is a demo as a process.
type running struct {
	*exec.Cmd
	temp string // its directory for temporary files
	out  *bufio.Reader
	err  bytes.Buffer
	text strings.Builder // its output so far
}

// newDemo prepares a demo with a directory for temporary files of its own.
func newDemo(t *testing.T, args ...string) *running {
	t.Helper()
	cache, err := servers.Cache()
	testkit.Must(t, err)
	// Without its own cache the demo would create one in its temporary directory, which is slower.
	testkit.Must(t, os.MkdirAll(cache, 0o755))
	r := &running{Cmd: exec.Command(binary, args...), temp: t.TempDir()}
	r.Env = append(os.Environ(), "TMPDIR="+r.temp, "CANAL_OUTBOX_CACHE="+cache)
	r.Stderr = &r.err
	return r
}

func startDemo(t *testing.T, args ...string) *running {
	t.Helper()
	r := newDemo(t, args...)
	out, err := r.StdoutPipe()
	testkit.Must(t, err)
	r.out = bufio.NewReader(out)
	r.begin(t)
	return r
}

func (r *running) begin(t *testing.T) {
	t.Helper()
	testkit.Must(t, r.Start())
	t.Cleanup(func() {
		if r.ProcessState == nil {
			_ = r.Process.Kill() // a failed test; the servers end with the process
			_ = r.Wait()
		}
	})
	// The demo has its own deadlines. This one ends a demo that hangs.
	hung := time.AfterFunc(10*time.Minute, func() { _ = r.Process.Kill() })
	t.Cleanup(func() { hung.Stop() })
}

// until reads the output up to a line that contains text.
func (r *running) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := r.out.ReadString('\n')
		r.text.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("the demo ended before %q (%v):\n%s\n%s", text, err, r.text.String(), r.err.String())
		}
	}
}

// end reads the rest and returns the exit code.
func (r *running) end(t *testing.T) int {
	t.Helper()
	rest, err := io.ReadAll(r.out)
	testkit.Must(t, err)
	r.text.Write(rest)
	_ = r.Wait() // its error is the exit code
	return r.ProcessState.ExitCode()
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// nothingLeft checks that the directory for temporary files is empty, that no process works in it, and that no server answers at
// the addresses in the output.
func (r *running) nothingLeft(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(r.temp)
	testkit.Must(t, err)
	for _, e := range entries {
		t.Errorf("the demo left %s", e.Name())
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	testkit.Must(t, err)
	for _, path := range commands {
		// A process that ended meanwhile cannot be read.
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(r.temp)) {
			t.Errorf("the demo left the process %q", bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
		}
	}
	addresses := address.FindAllString(r.text.String(), -1)
	if len(addresses) == 0 {
		t.Error("the output names no address")
	}
	for _, a := range addresses {
		if conn, err := net.Dial("tcp", a); err == nil {
			_ = conn.Close()
			t.Errorf("a server still answers at %s", a)
		}
	}
}

func TestDemo(t *testing.T) {
	r := startDemo(t, "--duration", "15s", "--rate", "200")
	code := r.end(t)
	t.Logf("%s%s", r.text.String(), r.err.String())
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"1/3", "2/3", "3/3", "SIGKILL", "gap recorded after the purge               1  ok", "The account holds"} {
		if !strings.Contains(r.text.String(), want) {
			t.Errorf("the output does not say %q", want)
		}
	}
	r.nothingLeft(t)
}

// Ctrl-C repeatedly, also while the demo cleans up.
func TestDemoInterruptedAgainAndAgain(t *testing.T) {
	r := startDemo(t, "--duration", "10m", "--rate", "50")
	r.until(t, " 2s ")
	ended := make(chan struct{})
	var impatience sync.WaitGroup
	impatience.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			_ = r.Process.Signal(syscall.SIGINT) // fails when the process has ended
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
	code := r.end(t)
	close(ended)
	impatience.Wait()
	// One of the signals may end the program behind the demo, before it has printed the reason.
	if killed := code == -1; !killed && (code != 1 || !strings.Contains(r.err.String(), "interrupted")) {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
	r.nothingLeft(t)
}

// The reader of the output ends, as in `canal-outbox-demo | head`.
func TestDemoWithoutReader(t *testing.T) {
	out, in, err := os.Pipe()
	testkit.Must(t, err)
	r := newDemo(t, "--rate", "50")
	r.Stdout = in
	r.begin(t)
	testkit.Must(t, in.Close())
	r.out = bufio.NewReader(out)
	r.until(t, "database")
	testkit.Must(t, out.Close())
	if err := r.Wait(); err == nil || r.ProcessState.ExitCode() != 1 || !strings.Contains(r.err.String(), "broken pipe") {
		t.Errorf("the demo ended with %v: %s", err, r.err.String())
	}
	r.nothingLeft(t)
}

func TestDemoKeeps(t *testing.T) {
	relay.Long(t)
	r := startDemo(t, "--duration", "10s", "--rate", "100", "--keep")
	r.until(t, "Everything continues")
	r.until(t, "relay ")
	testkit.Must(t, r.Process.Signal(syscall.SIGTERM))
	if code := r.end(t); code != 0 {
		t.Errorf("exit code %d: %s", code, r.err.String())
	}
	r.nothingLeft(t)
}

// An external broker keeps running and loses the demo's topic.
func TestDemoWithGivenKafka(t *testing.T) {
	relay.Long(t)
	k := testkit.NewKafka(t, testkit.KafkaOptions{})
	topic := withGiven(t, "--kafka", k.Addr())
	if _, err := testkit.ReadKafkaTopic(t.Context(), k.Addr(), topic); err == nil {
		t.Error("the topic is still there")
	}
}

func TestDemoWithGivenRocketMQ(t *testing.T) {
	relay.Long(t)
	mq := testkit.NewRocketMQ(t, testkit.RocketMQOptions{})
	topic := withGiven(t, "--rocketmq", mq.NameServer())
	if _, err := testkit.ReadRocketMQTopic(t.Context(), mq.NameServer(), topic); err == nil {
		t.Error("the topic is still there")
	}
}

// withGiven runs a demo with a broker and returns its topic there.
func withGiven(t *testing.T, broker, address string) (topic string) {
	t.Helper()
	r := startDemo(t, "--duration", "10s", "--rate", "100", broker, address)
	code := r.end(t)
	t.Logf("%s%s", r.text.String(), r.err.String())
	if code != 0 || !strings.Contains(r.text.String(), "2/3 Skipped") {
		t.Errorf("exit code %d", code)
	}
	match := topicName.FindStringSubmatch(r.text.String())
	if match == nil {
		t.Fatal("the output does not name the topic")
	}
	return match[1]
}

var topicName = regexp.MustCompile(`topic (canal-outbox-demo-[0-9a-f]{8})`)
