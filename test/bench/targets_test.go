package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
)

// target is a line of the table that ends a run: what is wanted of a figure, or of a figure over another one of the same run.
type target struct {
	name    string
	of      string // what a benchmark has measured
	over    string // of the same run; "" is nothing
	wanted  float64
	atLeast bool // else at most
	unit    string
}

// A figure in µs or rows/s belongs to a machine; a ratio does not.
var targets = []target{
	{name: "drain until SENT, MariaDB, over UPDATEs alone on two connections", of: "drain-mariadb", over: "updates-mariadb-2", wanted: .6, atLeast: true},
	{name: "drain until SENT, MySQL, over UPDATEs alone on two connections", of: "drain-mysql", over: "updates-mysql-2", wanted: .7, atLeast: true},
	{name: "CPU per message in the drain, MariaDB", of: "drain-cpu-mariadb", wanted: 8, unit: "µs"},
	{name: "CPU per message in the drain, MySQL", of: "drain-cpu-mysql", wanted: 8, unit: "µs"},
	{name: "CPU per message in the drain, table without a status", of: "log-only-cpu", wanted: 5, unit: "µs"},
	{name: "allocations per message in the drain", of: "drain-allocs", wanted: 6},
	{name: "peak memory in the drain", of: "drain-peak", wanted: 80, unit: "MiB"},
	{name: "CPU per message at 500 rows/s, one a transaction", of: "steady-cpu", wanted: 120, unit: "µs"},
	{name: "CPU per message among 10 foreign updates", of: "foreign-cpu", wanted: 20, unit: "µs"},
	{name: "p99 commit to received less the broker's, over the INSERT's", of: "received-p99", over: "insert-p99", wanted: 1},
	{name: "backlog in the table, by the sweep", of: "sweep", wanted: 40_000, atLeast: true, unit: "rows/s"},
	{name: "from the process's start to the first message", of: "start", wanted: .15, unit: "s"},
	{name: "CPU per message, 64 tables over one: 500 rows/s", of: "shards-steady", wanted: 1.05},
	{name: "CPU per message, 64 tables over one: burst", of: "shards-burst", wanted: 1.05},
	{name: "CPU per message, 64 tables over one: drain", of: "shards-drain", wanted: 1.05},
	{name: "CPU per message, 8 tables over one, among foreign updates", of: "tables-drain", wanted: 1.05},
	{name: "CPU per message, 5,000 GTID intervals over one: 500 rows/s", of: "history-steady", wanted: 1.05},
	{name: "CPU per message, 5,000 GTID intervals over one: drain", of: "history-drain", wanted: 1.05},
}

var figures = struct {
	sync.Mutex
	of map[string][]float64
}{of: map[string][]float64{}}

// measured keeps a figure for the table; of several the median counts.
func measured(what string, value float64) {
	figures.Lock()
	defer figures.Unlock()
	figures.of[what] = append(figures.of[what], value)
}

func figure(what string) (float64, bool) {
	list := slices.Sorted(slices.Values(figures.of[what]))
	if len(list) == 0 {
		return 0, false
	}
	return list[len(list)/2], true
}

// measure is what a target has come to, if this run has measured it.
func (t target) measure() (value float64, ok bool) {
	value, ok = figure(t.of)
	if t.over != "" && ok {
		var of float64
		of, ok = figure(t.over)
		value /= of
	}
	return value, ok
}

// printTargets writes the table of what this run has measured.
func printTargets(to io.Writer) error {
	figures.Lock()
	defer figures.Unlock()
	if len(figures.of) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\ntarget\twanted\tmeasured")
	for _, t := range targets {
		value, ok := t.measure()
		if !ok {
			continue
		}
		sign, reached := "at most", value <= t.wanted
		if t.atLeast {
			sign, reached = "at least", value >= t.wanted
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s", t.name, sign, t.text(t.wanted), t.text(value))
		if reached {
			fmt.Fprint(w, "\treached")
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func (t target) text(value float64) string {
	digits := 2
	if value >= 10 {
		digits = 0
	}
	text := fmt.Sprintf("%.*f", digits, value)
	if t.unit != "" {
		text += " " + t.unit
	}
	return text
}

// showTargets is what a run ends with.
func showTargets() {
	if err := printTargets(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// The table has what was measured, as ratios where it says so, and leaves the rest out.
func TestTheTableOfTargets(t *testing.T) {
	figures.of = map[string][]float64{
		"drain-mysql": {50, 60, 90}, "updates-mysql-2": {100}, "drain-mariadb": {1}, "drain-cpu-mysql": {15.5}, "shards-drain": {1.3}, "history-drain": {1.004},
	}
	defer clear(figures.of)
	var out writer
	if err := printTargets(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
target                                                          wanted           measured
drain until SENT, MySQL, over UPDATEs alone on two connections  at least 0.70    0.60
CPU per message in the drain, MySQL                             at most 8.00 µs  16 µs
CPU per message, 64 tables over one: drain                      at most 1.05     1.30
CPU per message, 5,000 GTID intervals over one: drain           at most 1.05     1.00  reached
`
	if string(out) != want {
		t.Errorf("%s", out)
	}
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
