package app

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// memorySection is what the package of a fourth sink would bring.
type memorySection struct {
	Hosts        []string       `yaml:"hosts"`
	Password     setting.Secret `yaml:"password"`
	PasswordFile setting.File   `yaml:"password_file"`
	TLS          setting.TLS    `yaml:"tls"`
	Limit        setting.Bytes  `yaml:"limit"`
}

func newMemorySection() *memorySection {
	return &memorySection{TLS: setting.TLS{Mode: "disabled"}, Limit: setting.MiB}
}

func (s *memorySection) Validate(r setting.Report) {
	r.HostPorts("hosts", s.Hosts)
	r.TLS("tls", s.TLS, "disabled", "required")
	r.Size("limit", s.Limit, 1, setting.MiB)
}

func (s *memorySection) MaxBody() setting.Bytes { return s.Limit }

func (s *memorySection) Open(limits sink.Limits, _ *zap.Logger, _ prometheus.Registerer) (sink.Sink, error) {
	return &memorySink{room: limits.Messages}, nil
}

func (s *memorySection) Check(_ context.Context, _ sink.Sink, newest sink.Newest) []server.Finding {
	return []server.Finding{{Severity: server.Warning, Subject: "sink", What: "memory forgets " + strings.Join(newest.Topics, ", ")}}
}

// memorySink takes every message.
type memorySink struct {
	room int
	kept []*outbox.Message
}

func (s *memorySink) Send(batch []*outbox.Message, done func([]sink.Result)) {
	s.kept = append(s.kept, batch...)
	results := make([]sink.Result, len(batch))
	for i, m := range batch {
		results[i].Message = m
	}
	go done(results)
}

func (*memorySink) Probe(context.Context) error { return nil }

func (*memorySink) Topics(_ context.Context, topics []string) (map[string]error, error) {
	faults := map[string]error{}
	for _, name := range topics {
		if strings.Contains(name, "/") {
			faults[name] = &sink.TopicNameError{Why: "memory knows no slash"}
		}
	}
	return faults, nil
}

func (*memorySink) Close(context.Context) error { return nil }

// withMemory is the table with one more line.
var withMemory = append(slices.Clone(Sinks), kind("memory", newMemorySection))

const memoryConfig = `
source: {address: "db:3306", user: u}
tables: [{name: a.b, preset: t_local_message}]
pipeline: {max_in_flight: 77}
sink:
  memory:
`

// A sink of its own needs one line in the table: its section is read, overridden, checked and printed like every other, and
// opens it.
func TestAFourthSink(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	testkit.Must(t, os.WriteFile(secret, []byte("canary\n"), 0o600))
	cfg, unknown, err := config.Parse("test", []byte(memoryConfig+"    hosts: [a:1]\n    password_file: "+secret+"\n"),
		[]string{"CANAL_OUTBOX_SINK_MEMORY_HOSTS=b:2,c:3", "CANAL_OUTBOX_SINK_MEMORY_LIMIT=7KiB"}, withMemory)
	testkit.Must(t, err)
	section := cfg.Sink.Section().(*memorySection)
	if len(unknown) > 0 || cfg.Sink.Kind() != "memory" || len(section.Hosts) != 2 || section.Limit != 7<<10 || section.Password.Get() != "canary" {
		t.Errorf("%+v, unknown %v", section, unknown)
	}
	printed, err := cfg.Print()
	testkit.Must(t, err)
	if text := string(printed); strings.Contains(text, "canary") || !strings.Contains(text, "limit: 7KiB") {
		t.Errorf("printed:\n%s", text)
	}
	s, err := newSink(cfg, nil, zap.NewNop(), prometheus.NewRegistry())
	testkit.Must(t, err)
	if m := s.(*memorySink); m.room != 77 {
		t.Errorf("room for %d messages", m.room)
	}
	section.TLS.CA = setting.NewFile("/nowhere")
	if faults := cfg.MissingFiles(); len(faults) != 1 || faults[0].Path != "sink.memory.tls.ca" {
		t.Errorf("missing files: %v", faults)
	}
}

// Its faults are reported with all others, each with its path.
func TestFaultsOfAFourthSink(t *testing.T) {
	_, _, err := config.Parse("test", []byte(strings.Replace(memoryConfig, "user: u", "usr: u", 1)+
		"    hosts: [a]\n    tls: {mode: preferred}\n    limit: 2MiB\n    pasword: x\n"), nil, withMemory)
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{"source.usr", "sink.memory.hosts[0]", "sink.memory.tls.mode", "sink.memory.limit", `sink.memory.pasword`, `did you mean "password"?`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
	if _, _, err = config.Parse("test", []byte(strings.Replace(memoryConfig, "memory:", "memry: {}", 1)), nil, withMemory); err == nil ||
		!strings.Contains(err.Error(), `did you mean "memory"?`) {
		t.Errorf("a misspelt sink: %v", err)
	}
}

// doctor asks it, and never says that a topic is to be created whose name it does not take.
func TestDoctorAsksAFourthSink(t *testing.T) {
	cfg := &config.Config{Sink: config.Use("memory", newMemorySection())}
	got := broker(cfg).Check(t.Context(), []string{"orders", "a/b"}, map[string]int64{"orders": 2 << 20})
	if !has(got, server.Warning, "memory forgets orders") || !has(got, server.Warning, "2097152 bytes", "1MiB") ||
		!has(got, server.Fault, "topic a/b", "no slash", "become FAILED") {
		t.Errorf("got\n%s", findings(got))
	}
	for _, f := range got {
		if f.Subject == "topic a/b" && strings.Contains(f.Fix, "create") {
			t.Errorf("advised: %s", f.Fix)
		}
	}
}
