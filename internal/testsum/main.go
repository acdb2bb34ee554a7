// Command testsum runs the tests and closes with one line: how many passed, failed and were skipped. Packages whose tests
// start real servers run one after the other, so that two cores suffice; all others run side by side.
//
// It guarantees to fail when any test, package or build failed, and to show the output of what failed and of nothing else.
// It owns no goroutine.
//
//	go run ./internal/testsum [-quick] [flags of go test] [packages]
//
// With -quick the packages that start servers are left out. The simulation runs without the race detector, which would take
// most of its seeds away; a few under -race are for a run by hand.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	failed, err := run(context.Background(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if failed {
		os.Exit(1)
	}
}

const (
	// testkit is the package that starts real servers.
	testkit = "github.com/canal-outbox/canal-outbox/internal/testkit"
	// simulation is the package that is all computation.
	simulation = "github.com/canal-outbox/canal-outbox/test/sim"
)

// run tests the packages named behind the flags, ./... when there are none.
func run(ctx context.Context, args []string, out io.Writer) (failed bool, err error) {
	flags, packages := split(args)
	onlyQuick := slices.Contains(flags, "-quick")
	flags = slices.DeleteFunc(flags, func(f string) bool { return f == "-quick" })
	quick, servers, err := group(ctx, packages)
	if err != nil {
		return false, err
	}
	s := &summary{out: out, output: map[string][]string{}, broken: map[string]bool{}}
	if i := slices.Index(quick, simulation); i >= 0 && slices.Contains(flags, "-race") {
		quick = slices.Delete(quick, i, i+1)
		plain := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "-race" })
		if err := s.test(ctx, append(plain, simulation)); err != nil {
			return false, err
		}
	}
	if len(quick) > 0 {
		if err := s.test(ctx, append(slices.Clone(flags), quick...)); err != nil {
			return false, err
		}
	}
	if len(servers) > 0 && !onlyQuick {
		if err := s.test(ctx, slices.Concat(flags, []string{"-p=1"}, servers)); err != nil {
			return false, err
		}
	}
	return s.close()
}

// split tells flags from packages. Flags with a value are written with =.
func split(args []string) (flags, packages []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			flags = append(flags, a)
		} else {
			packages = append(packages, a)
		}
	}
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	return flags, packages
}

// group tells packages whose tests start servers, by themselves or through what they import, from the others. Packages
// without tests are in neither.
func group(ctx context.Context, patterns []string) (quick, servers []string, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-test", "-f", "{{.ImportPath}}{{range .Deps}} {{.}}{{end}}"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w", err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		name, deps, _ := strings.Cut(line, " ")
		tested, isTest := strings.CutSuffix(name, ".test")
		switch {
		case !isTest:
		case slices.Contains(strings.Fields(deps), testkit) || tested == testkit:
			servers = append(servers, tested)
		default:
			quick = append(quick, tested)
		}
	}
	return quick, servers, nil
}

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Elapsed    float64
	Output     string
}

// summary counts and prints.
type summary struct {
	out                     io.Writer
	passed, failed, skipped int
	skips                   []string
	output                  map[string][]string // of tests that are not finished, by package and test
	broken                  map[string]bool     // packages with a failed test
	printErr                error
}

// test runs go test once. A failure that no event told, such as a wrong flag, is an error.
func (s *summary) test(ctx context.Context, args []string) error {
	before := s.failed
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := s.read(stream)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && s.failed > before {
		err = nil
	}
	return errors.Join(readErr, err)
}

func (s *summary) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				s.print("%s", line) // not every tool below go test writes JSON
			} else {
				s.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take counts one event.
func (s *summary) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		s.output[key] = append(s.output[key], e.Output)
	case "build-output":
		s.print("%s", e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			s.takePackage(e)
		} else {
			s.takeTest(e)
		}
		delete(s.output, key)
	}
}

func (s *summary) takeTest(e event) {
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
		s.skips = append(s.skips, e.Package+" "+e.Test)
	default:
		s.failed++
		s.broken[e.Package] = true
		s.print("%s", strings.Join(s.output[e.Package+" "+e.Test], ""))
	}
}

func (s *summary) takePackage(e event) {
	if e.Action != "fail" {
		if e.Action == "pass" {
			s.print("ok    %s  %.1fs\n", e.Package, e.Elapsed)
		}
		return
	}
	s.print("FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	if !s.broken[e.Package] { // it failed outside its tests: a leak, a panic, TestMain
		s.failed++
		s.print("%s", strings.Join(s.output[e.Package+" "], ""))
	}
}

func (s *summary) print(format string, args ...any) {
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil {
		s.printErr = err
	}
}

// close prints what was skipped, and the line.
func (s *summary) close() (failed bool, err error) {
	for _, name := range s.skips {
		s.print("skipped: %s\n", name)
	}
	s.print("%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return s.failed > 0, s.printErr
}
