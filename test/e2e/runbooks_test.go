package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/docs"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// reader acts as a person who works through a page of docs/ and follows it: it runs the commands of the sh blocks on a machine
// with a relay, and the statements of the sql blocks as an administrator of the database. A text block shows what the commands
// before it print.
type reader struct {
	*stage
	dir      string
	machines []*relay.Relay    // the second one is what a page calls the new machine, or the standby
	values   map[string]string // what replaces the examples of the page
	hooks    map[string]func() // what happens in the world when the reader comes to a heading
	printed  string            // by the last sh block
}

func newReader(t *testing.T, flavor testkit.Flavor, opts relay.Options) *reader {
	t.Helper()
	return newReaderOn(t, testkit.SharedDatabase(t, flavor), opts)
}

func newReaderOn(t *testing.T, db *testkit.Database, opts relay.Options) *reader {
	t.Helper()
	r := &reader{stage: newStage(t, db, fake(t), ""), dir: t.TempDir(), values: map[string]string{}, hooks: map[string]func(){}}
	if opts.Source == "" {
		opts.Source = db.Addr()
	}
	opts.Tables, opts.Sink = []*relay.Table{r.table}, r.broker.Sink()
	r.machines = []*relay.Relay{relay.New(t, opts), relay.New(t, opts)}
	r.Relay = r.machines[0]
	for i, m := range r.machines {
		testkit.Must(t, os.MkdirAll(r.bin(i), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(r.bin(i), "canal-outbox"), fmt.Appendf(nil, program, relay.Binary(t, ""), m.Config()), 0o700))
	}
	r.values["shop.t_local_message"] = r.table.FullName()
	r.values["/usr/local/bin"] = r.bin(0)
	r.values["/etc/canal-outbox"], r.values["/var/backups"] = r.dir, r.dir
	return r
}

func (r *reader) bin(machine int) string { return filepath.Join(r.dir, fmt.Sprint("bin", machine)) }

// program replaces the one in the path of a machine, whose configuration is where it is always looked for. Who asks for the status looks
// until all is well.
const program = `#!/bin/bash
if [ "$1" != status ]; then exec %[1]s "$@" --config %[2]s; fi
for _ in {1..300}; do %[1]s "$@" --config %[2]s && exit 0; sleep 0.2; done
exit 4
`

var (
	fence   = regexp.MustCompile("^```([a-z]*)$")
	asks    = regexp.MustCompile(`^canal-outbox (messages (retry|discard)|checkpoint (set|rollback)) `)
	decided = regexp.MustCompile(`--(yes|dry-run)`)
	another = regexp.MustCompile(`[Oo]n the (new machine|standby)`)
)

// reads works through a page from top to bottom.
func (r *reader) reads(page string) {
	r.t.Helper()
	text, err := docs.Pages.ReadFile(page)
	testkit.Must(r.t, err)
	kind, block, before, found, inside := "", "", "", 0, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		mark := fence.FindStringSubmatch(strings.TrimSpace(line))
		switch heading := strings.TrimLeft(line, "# "); {
		case mark != nil && !inside:
			kind, block, inside = mark[1], "", true
		case mark != nil:
			r.do(page, kind, block, before)
			inside, found = false, found+1
		case inside:
			block += line + "\n"
		case strings.HasPrefix(line, "#"):
			if hook := r.hooks[heading]; hook != nil {
				delete(r.hooks, heading)
				hook()
			}
			before = ""
		case line != "":
			before = line
		}
	}
	if found == 0 {
		r.t.Errorf("%s has no commands", page)
	}
	for _, heading := range slices.Sorted(maps.Keys(r.hooks)) {
		r.t.Errorf("%s has no heading %q", page, heading)
	}
}

func (r *reader) do(page, kind, block, before string) {
	r.t.Helper()
	machine := 0
	if another.MatchString(before) {
		machine = 1
	}
	var pairs []string
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(r.values))) { // shop.orders before shop
		pairs = append(pairs, name, r.values[name])
	}
	written := strings.NewReplacer(pairs...).Replace(block)
	switch kind {
	case "sh":
		r.printed = ""
		if strings.Contains(written, "<<") { // a file is written
			r.shell(page, machine, written)
			return
		}
		for line := range strings.Lines(strings.ReplaceAll(written, "\\\n", " ")) {
			r.command(page, machine, strings.TrimSpace(line))
		}
	case "sql":
		for statement := range strings.SplitSeq(written, ";\n") {
			if strings.TrimSpace(statement) != "" {
				r.exec(statement)
			}
		}
	case "text":
		r.prints(page, written)
	case "json": // of a message that the relay prints, where it prints them
		if strings.Contains(string(r.config()), "stdout") {
			r.wait("the relay to print "+written, func() bool { return strings.Contains(r.Log(r.t), strings.TrimSpace(written)) })
		}
	case "yaml", "": // read, not run
	default:
		r.t.Errorf("%s: this test has no way to run a block of %s", page, kind)
	}
}

func (r *reader) config() []byte {
	r.t.Helper()
	text, err := os.ReadFile(r.Config())
	testkit.Must(r.t, err)
	return text
}

// command is one line. A service manager is not here: this test starts and stops relays.
func (r *reader) command(page string, machine int, line string) {
	r.t.Helper()
	line, _, _ = strings.Cut(line, "  #")
	if asks.MatchString(line) && !decided.MatchString(line) {
		line += " --yes" // there is no terminal to answer at
	}
	m := r.machines[machine]
	switch strings.TrimSpace(line) {
	case "":
	case "systemctl stop canal-outbox":
		m.Stop(r.t)
	case "systemctl restart canal-outbox":
		m.Stop(r.t)
		r.start(machine)
	case "systemctl start canal-outbox", "canal-outbox run":
		r.start(machine)
	case "make build": // the program that is tested was built before
	default:
		r.shell(page, machine, line)
	}
}

// start starts a relay and returns when it reads the binlog or is a standby.
func (r *reader) start(machine int) {
	r.t.Helper()
	m := r.machines[machine]
	m.Launch(r.t)
	r.wait("the relay to start", func() bool {
		if !m.Running() {
			r.t.Fatalf("the relay ended:\n%s", m.LogTail(20))
		}
		s, err := m.Status()
		return err == nil && (s.Source.State == "connected" || s.Source.State == "standby")
	})
}

func (r *reader) shell(page string, machine int, script string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = append(testkit.RelayEnvironment(), "PATH="+r.bin(machine)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if r.printed += string(out); err != nil {
		r.t.Fatalf("%s: %s: %v\n%s", page, script, err, out)
	}
}

// prints checks that the last commands printed the lines of a text block; ... matches anything.
func (r *reader) prints(page, text string) {
	r.t.Helper()
	rest := r.printed
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "\n", "..."), "...") {
		_, after, found := strings.Cut(rest, strings.TrimSpace(part))
		if !found {
			r.t.Errorf("%s: nothing prints %q:\n%s", page, part, r.printed)
			return
		}
		rest = after
	}
}
