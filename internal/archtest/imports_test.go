package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/canal-outbox/canal-outbox/"

// rule says what the packages of one path may import. Paths are relative to the module; a trailing /... covers all below.
type rule struct {
	path     string
	own      []string // packages of this module
	external []string // modules or packages from elsewhere, besides the standard library
}

// What every package from layer 2 up may use.
var observability = []string{"go.uber.org/zap", "github.com/prometheus/client_golang/prometheus"}

func with(more ...string) []string { return append(slices.Clone(observability), more...) }

// nouns are layers 0 and 1.
var nouns = []string{"outbox", "outbox/charset", "outbox/server", "outbox/table", "sink"}

// section is what a sink may know: the nouns, and what its section of the configuration is made of.
var section = append([]string{"internal/setting"}, nouns...)

// edges and flow are layers 2 and 3, which only app puts together.
var (
	edges = []string{"canal", "sink/...", "checkpoint", "outbox/store", "outbox/query"}
	flow  = []string{"pipeline", "pipeline/tracker", "pipeline/keyorder", "pipeline/dispatch", "pipeline/readback", "pipeline/recovery", "pipeline/reserved", "ack", "fallback", "retention", "redelivery", "lease"}
)

// rules are the import table of design and docs/decisions/0002-import-table.md. What is not listed is forbidden.
var rules = []rule{
	{path: "outbox"},
	// What applications import.
	{path: "outbox/producer"},
	{path: "inbox"},
	{path: "inbox/redisinbox", external: []string{"github.com/redis/go-redis/v9"}},
	{path: "outbox/server", own: []string{"outbox", "internal/setting"}, external: []string{"github.com/go-sql-driver/mysql"}},
	{path: "outbox/charset", external: []string{"golang.org/x/text/encoding"}},
	{path: "outbox/table", own: []string{"outbox", "outbox/charset", "outbox/server"}},
	{path: "outbox/table/tabletest", own: []string{"..."}, external: []string{"..."}}, // what the tests of table, store and query share
	{path: "outbox/store", own: nouns},
	{path: "outbox/query", own: nouns},
	{path: "sink", own: []string{"outbox"}},
	{path: "sink/sinktest", own: []string{"outbox", "sink"}, external: []string{"go.uber.org/goleak", "pgregory.net/rapid"}},

	{path: "canal/definition"},
	{path: "canal", own: append([]string{"canal/definition"}, nouns...), external: with("github.com/go-mysql-org/go-mysql", "go.uber.org/zap/exp")},
	{path: "sink/kafka", own: append([]string{"sink/kafka/awskeys", "sink/kafka/ledger"}, section...), external: with("github.com/twmb/franz-go", "golang.org/x/oauth2")},
	{path: "sink/kafka/awskeys"},
	{path: "sink/kafka/ledger", own: []string{"outbox"}, external: []string{"github.com/twmb/franz-go"}},
	{path: "sink/kafka/coordinatortest", own: []string{"outbox", "sink/kafka", "sink/kafka/ledger"}, external: []string{"github.com/twmb/franz-go"}}, // what Kafka and its model must do
	{path: "sink/rocketmq", own: append([]string{"sink/rocketmq/remoting"}, section...), external: with("github.com/apache/rocketmq-client-go/v2")},
	{path: "sink/rocketmq/remoting"},
	{path: "sink/stdout", own: section, external: with()},
	{path: "checkpoint", own: nouns, external: with("github.com/cockroachdb/pebble/v2")},

	{path: "pipeline/tracker", own: nouns, external: with()},
	{path: "pipeline/keyorder", own: []string{"outbox", "pipeline/tracker"}},
	{path: "pipeline/dispatch", own: append([]string{"pipeline/tracker", "pipeline/keyorder"}, nouns...), external: with("golang.org/x/time")},
	{path: "pipeline/recovery", own: append([]string{"pipeline/tracker", "pipeline/dispatch"}, nouns...), external: with("golang.org/x/sync")},
	{path: "pipeline/readback", own: nouns, external: with("golang.org/x/sync")},
	{path: "pipeline/reserved", own: []string{"outbox"}},
	{path: "pipeline/flowtest", own: append([]string{"pipeline", "pipeline/tracker", "pipeline/dispatch", "pipeline/recovery"}, nouns...), external: with()}, // what the tests of these parts share
	{path: "pipeline", own: append([]string{"pipeline/tracker", "pipeline/dispatch", "pipeline/recovery"}, nouns...), external: with()},
	{path: "ack", own: nouns, external: with("golang.org/x/sync")},
	{path: "fallback", own: append([]string{"pipeline/reserved"}, nouns...), external: with("golang.org/x/time", "golang.org/x/sync")},
	{path: "retention", own: nouns, external: with()},
	{path: "redelivery", own: append([]string{"pipeline/reserved"}, nouns...), external: with()},
	{path: "lease", own: []string{"outbox", "outbox/server", "lease/protocol"}, external: with()},
	{path: "lease/protocol", own: []string{"outbox", "outbox/server"}},
	{path: "lease/leasetest", own: []string{"lease/protocol"}},

	{path: "migrations"},
	{path: "internal/setting"},
	{path: "internal/config", own: append([]string{"internal/setting"}, nouns...), external: []string{"github.com/goccy/go-yaml"}},
	{path: "internal/admin", own: []string{"outbox", "docs", "internal/operator", "internal/setting", "internal/translate"}, external: with("golang.org/x/sync", "github.com/yuin/goldmark")},
	{path: "internal/operator", own: append([]string{"docs", "outbox/query"}, nouns...), external: with()},
	{path: "internal/history", own: []string{"internal/operator"}, external: []string{"go.uber.org/zap"}},
	{path: "internal/alert", own: []string{"outbox", "internal/setting"}, external: with()},
	{path: "internal/doctor", own: append([]string{"internal/setting", "internal/config", "outbox/store", "outbox/query"}, nouns...)},
	{path: "internal/reconcile", own: nouns, external: with()},
	{path: "internal/tracing", own: nouns, external: with("go.opentelemetry.io/otel")},
	{path: "internal/bench", own: nouns, external: []string{"golang.org/x/sync", "golang.org/x/time"}},
	{path: "internal/translate", own: []string{"docs"}, external: []string{"golang.org/x/text/language"}},
	{path: "internal/systemd", external: with("github.com/coreos/go-systemd/v22")},
	{path: "internal/shadow", own: nouns, external: with()},
	{path: "internal/relay", own: slices.Concat(nouns, flow, []string{"canal"}), external: with()},
	{path: "internal/app/reference", own: []string{"internal/app", "internal/config"}},
	{path: "internal/app/...", own: slices.Concat(nouns, edges, flow, []string{"internal/setting", "internal/config", "internal/admin", "internal/alert", "internal/bench", "internal/doctor", "internal/history", "internal/operator", "internal/reconcile", "internal/relay", "internal/shadow", "internal/systemd", "internal/tracing", "migrations"}), external: with("golang.org/x/sync")},
	{
		path: "internal/adopt",
		own:  append([]string{"internal/app", "internal/config", "internal/doctor", "internal/operator", "internal/setting", "internal/translate", "outbox/store", "lease"}, nouns...), external: []string{"golang.org/x/term"},
	},
	{path: "docs"}, // the pages, embedded
	{path: "internal/archtest"},

	// What tests, the benchmarks and the examples use; it may know everything.
	{path: "internal/testkit/...", own: []string{"..."}, external: []string{"..."}},
	{path: "test/...", own: []string{"..."}, external: []string{"..."}},
	{path: "examples/...", own: []string{"..."}, external: []string{"..."}},

	{
		path: "cmd/canal-outbox/...",
		own: []string{
			"outbox", "outbox/server", "migrations", "internal/adopt", "internal/config", "internal/operator", "internal/admin", "internal/relay", "internal/app", "internal/bench", "internal/reconcile", "internal/translate",
		},
		external: with("github.com/spf13/cobra", "github.com/goccy/go-yaml", "golang.org/x/text/width"),
	},
}

// pkg is what `go list` says.
type pkg struct {
	ImportPath string
	Doc        string
	Imports    []string
	GoFiles    []string
}

// list returns the packages of the module, without their tests.
func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Doc,Imports,GoFiles", module+"...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// covers reports whether a pattern names a path: exactly, or everything below it.
func covers(pattern, path string) bool {
	if stem, below := strings.CutSuffix(pattern, "..."); below {
		return path == strings.TrimSuffix(stem, "/") || strings.HasPrefix(path, stem)
	}
	return path == pattern
}

func find(path string) (rule, bool) {
	for _, r := range rules {
		if covers(r.path, path) {
			return r, true
		}
	}
	return rule{}, false
}

// isStandard reports whether an import path is of the standard library: those have no dot in their first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// allowed says whether a rule lets a package import another.
func (r rule) allowed(imported string) bool {
	if isStandard(imported) {
		return true
	}
	if own, ours := strings.CutPrefix(imported, module); ours {
		return slices.ContainsFunc(r.own, func(pattern string) bool { return covers(pattern, own) })
	}
	return slices.ContainsFunc(r.external, func(stem string) bool {
		return stem == "..." || imported == stem || strings.HasPrefix(imported, stem+"/")
	})
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		r, known := find(path)
		if !known {
			t.Errorf("%s is not in the import table: add it there, and to docs/decisions/0002-import-table.md", path)
			continue
		}
		for _, imported := range p.Imports {
			if !r.allowed(imported) {
				t.Errorf("%s imports %s, which the import table does not allow", path, strings.TrimPrefix(imported, module))
			}
		}
	}
}

func TestEveryPackageExplainsItself(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if p.Doc == "" && len(p.GoFiles) > 0 { // go list has no comment of a package of tests alone
			t.Errorf("%s has no package comment", path)
		}
	}
}

// The service is what runs in production: no demo, no test kit, no installer, nothing that is for applications, and no library
// that only those use.
func TestTheServiceLinksNoTestKit(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/canal-outbox").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, module+"internal/app") {
		t.Fatalf("not a list of what is linked: %q", linked)
	}
	for _, path := range linked {
		for _, stem := range []string{
			module + "internal/testkit", module + "examples", module + "test", "testing", "go.uber.org/goleak",
			"github.com/twmb/franz-go/pkg/kfake", module + "outbox/producer", module + "inbox", "github.com/redis",
		} {
			if path == stem || strings.HasPrefix(path, stem+"/") {
				t.Errorf("cmd/canal-outbox links %s", path)
			}
		}
	}
}

// The table itself: what it must refuse.
func TestTheTableRefuses(t *testing.T) {
	for _, c := range []struct{ from, imported string }{
		{"outbox", "go.uber.org/zap"},
		{"outbox", module + "sink"},
		{"outbox/producer", module + "outbox"},
		{"outbox/producer", "github.com/go-sql-driver/mysql"},
		{"inbox", "github.com/redis/go-redis/v9"},
		{"inbox", module + "outbox"},
		{"canal", module + "inbox"},
		{"sink", module + "outbox/table"},
		{"outbox/table", "github.com/go-sql-driver/mysql"},
		{"outbox/table", module + "outbox/store"},
		{"outbox/query", module + "outbox/store"},
		{"outbox/store", module + "outbox/query"},
		{"fallback", module + "outbox/store"},
		{"canal", module + "pipeline"},
		{"canal", module + "checkpoint"},
		{"canal", "github.com/cockroachdb/pebble/v2"},
		{"sink/kafka", module + "sink/rocketmq"},
		{"checkpoint", "github.com/go-mysql-org/go-mysql/replication"},
		{"pipeline", module + "ack"},
		{"pipeline/tracker", module + "pipeline/dispatch"},
		{"pipeline/dispatch", module + "pipeline/recovery"},
		{"pipeline/keyorder", module + "pipeline/dispatch"},
		{"ack", module + "checkpoint"},
		{"fallback", "github.com/go-sql-driver/mysql"},
		{"lease", module + "pipeline"},
		{"internal/admin", module + "internal/config"},
		{"internal/config", module + "canal"},
		{"internal/config", module + "sink/kafka"},
		{"sink/kafka", module + "internal/config"},
		{"internal/operator", module + "checkpoint"},
		{"internal/doctor", module + "checkpoint"},
		{"internal/doctor", module + "sink/kafka"},
		{"internal/operator", module + "internal/app"},
		{"internal/operator", module + "internal/admin"},
		{"internal/doctor", module + "internal/admin"},
		{"internal/app", module + "internal/adopt"},
		{"cmd/canal-outbox", module + "pipeline"},
		{"pipeline", "go.uber.org/zapfoo"},
	} {
		r, known := find(c.from)
		if !known || r.allowed(c.imported) {
			t.Errorf("%s may import %s", c.from, c.imported)
		}
	}
}
