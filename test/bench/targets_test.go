package bench

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// target is a line of the table at the end of a run: the target for a figure, or for the ratio of two figures of the same run. A
// target without a limit belongs to the previous line: the same work without the relay.
type target struct {
	name    string
	of      string // a measured figure
	over    string // of the same run; "" for none
	wanted  float64
	atLeast bool // else at most
	unit    string
}

// A figure in µs or rows/s is specific to a machine; a ratio is not.
var targets = []target{
	{name: "drain until SENT, MariaDB, over UPDATEs alone on two connections", of: "drain-mariadb", over: "updates-mariadb-2", wanted: .6, atLeast: true},
	{name: "  a process that only reads, produces and updates", of: "bare-drain-mariadb", over: "updates-mariadb-2"},
	{name: "drain until SENT, MySQL, over UPDATEs alone on two connections", of: "drain-mysql", over: "updates-mysql-2", wanted: .7, atLeast: true},
	{name: "  a process that only reads, produces and updates", of: "bare-drain-mysql", over: "updates-mysql-2"},
	{name: "CPU per message in the drain, MariaDB", of: "drain-cpu-mariadb", wanted: 8, unit: "µs"},
	{name: "  a process that only reads, produces and updates", of: "bare-drain-cpu-mariadb", unit: "µs"},
	{name: "  reading the log alone", of: "read-cpu-mariadb", unit: "µs"},
	{name: "  UPDATEs alone", of: "update-cpu-mariadb", unit: "µs"},
	{name: "CPU per message in the drain, MySQL", of: "drain-cpu-mysql", wanted: 8, unit: "µs"},
	{name: "  a process that only reads, produces and updates", of: "bare-drain-cpu-mysql", unit: "µs"},
	{name: "  reading the log alone", of: "read-cpu-mysql", unit: "µs"},
	{name: "  producing from memory alone", of: "produce-cpu", unit: "µs"},
	{name: "  UPDATEs alone", of: "update-cpu-mysql", unit: "µs"},
	{name: "CPU per message in the drain, table without a status", of: "log-only-cpu", wanted: 5, unit: "µs"},
	{name: "  a process that only reads and produces", of: "bare-log-only-cpu", unit: "µs"},
	{name: "allocations per message in the drain", of: "drain-allocs", wanted: 6},
	{name: "peak memory in the drain", of: "drain-peak", wanted: 80, unit: "MiB"},
	{name: "CPU per message at 500 rows/s, one a transaction", of: "steady-cpu", wanted: 120, unit: "µs"},
	{name: "  a process that only reads, produces and updates", of: "bare-cpu", unit: "µs"},
	{name: "CPU per message among 10 foreign updates", of: "foreign-cpu", wanted: 20, unit: "µs"},
	{name: "  reading the log alone", of: "read-foreign-cpu", unit: "µs"},
	{name: "p99 commit to received less the broker's, over the INSERT's", of: "received-p99", over: "insert-p99", wanted: 1},
	{name: "p99 commit to RocketMQ at 1,000 rows/s", of: "rocketmq-p99", wanted: 5, unit: "ms"},
	{name: "  the INSERT", of: "rocketmq-insert-p99", unit: "ms"},
	{name: "  a lone producer", of: "rocketmq-alone-p99", unit: "ms"},
	{name: "backlog in the table, by the sweep, MariaDB", of: "sweep-mariadb", wanted: 40_000, atLeast: true, unit: "rows/s"},
	{name: "  its SQL alone, by two workers", of: "sweep-sql-mariadb", unit: "rows/s"},
	{name: "backlog in the table, by the sweep, MySQL", of: "sweep-mysql", wanted: 40_000, atLeast: true, unit: "rows/s"},
	{name: "  its SQL alone, by two workers", of: "sweep-sql-mysql", unit: "rows/s"},
	{name: "fresh rows' p99 during a backlog, over theirs alone", of: "fresh-p99", wanted: 1},
	{name: "  during the same SQL for a table that is not the relay's", of: "fresh-p99-sql"},
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

// measured stores a figure for the table; of several the median counts.
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
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2, true
}

// measure returns the value of a target for a build, if this run has measured it. The divisor may come from a benchmark without a
// relay.
func (t target) measure(prefix string) (value float64, ok bool) {
	value, ok = figure(prefix + t.of)
	if t.over != "" && ok {
		of, with := figure(prefix + t.over)
		if !with {
			of, ok = figure(t.over)
		}
		value /= of
	}
	return value, ok
}

// printTargets writes the table of this run's figures, with those of the older build if it was measured.
func printTargets(to io.Writer, before bool) error {
	figures.Lock()
	defer figures.Unlock()
	if len(figures.of) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	head := "\ntarget\t"
	if before {
		head += "before\t"
	}
	fmt.Fprintln(w, head+"now\twanted\treached")
	var missing []string
	var line string // the following lines belong to it
	var shown bool  // it was measured
	for _, t := range targets {
		name := t.name
		if t.wanted > 0 {
			line, shown = name, false
		} else {
			name = line + ":" + strings.TrimPrefix(name, " ")
		}
		value, ok := t.measure("")
		was, had := t.measure("before-")
		if !ok && !had {
			missing = append(missing, name)
			continue
		}
		if shown = shown || t.wanted > 0; !shown {
			t.name = name
		}
		fmt.Fprintf(w, "%s\t", t.name)
		if before {
			fmt.Fprintf(w, "%s\t", t.text(was, had))
		}
		fmt.Fprintf(w, "%s\t%s\n", t.text(value, ok), t.verdict(value, ok))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(missing) > 0 {
		_, err := fmt.Fprintf(to, "not measured:\n  %s\n", strings.Join(missing, "\n  "))
		return err
	}
	return nil
}

// verdict returns the target, and whether a value reaches it.
func (t target) verdict(value float64, measured bool) string {
	if t.wanted == 0 {
		return "\t"
	}
	sign, reached := "at most", value <= t.wanted
	if t.atLeast {
		sign, reached = "at least", value >= t.wanted
	}
	answer := map[bool]string{true: "yes", false: "no"}[reached]
	if !measured {
		answer = "-"
	}
	return fmt.Sprintf("%s %s\t%s", sign, t.text(t.wanted, true), answer)
}

func (t target) text(value float64, measured bool) string {
	if !measured {
		return "-"
	}
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

// showTargets runs at the end of a run.
func showTargets() {
	if err := printTargets(os.Stdout, older != nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// The table shows measured figures, as ratios where defined, and lists the others.
func TestTheTableOfTargets(t *testing.T) {
	all := targets
	defer func() { targets = all }()
	targets = slices.DeleteFunc(slices.Clone(all), func(t target) bool {
		return !slices.Contains([]string{"drain-mysql", "drain-cpu-mysql", "produce-cpu", "start", "shards-drain", "drain-peak"}, t.of)
	})
	figures.of = map[string][]float64{
		"drain-mysql": {50, 60, 80, 90}, "updates-mysql-2": {100}, "before-drain-mysql": {30}, "before-drain-cpu-mysql": {31},
		"drain-cpu-mysql": {15.5}, "produce-cpu": {2}, "shards-drain": {1.3}, "before-start": {.4}, "drain-peak": {70, 80},
	}
	defer clear(figures.of)
	var alone, both strings.Builder
	testkit.Must(t, printTargets(&alone, false))
	testkit.Must(t, printTargets(&both, true))
	const wantAlone = `
target                                                          now      wanted           reached
drain until SENT, MySQL, over UPDATEs alone on two connections  0.70     at least 0.70    yes
CPU per message in the drain, MySQL                             16 µs    at most 8.00 µs  no
  producing from memory alone                                   2.00 µs                   
peak memory in the drain                                        75 MiB   at most 80 MiB   yes
from the process's start to the first message                   -        at most 0.15 s   -
CPU per message, 64 tables over one: drain                      1.30     at most 1.05     no
`
	const wantBoth = `
target                                                          before  now      wanted           reached
drain until SENT, MySQL, over UPDATEs alone on two connections  0.30    0.70     at least 0.70    yes
CPU per message in the drain, MySQL                             31 µs   16 µs    at most 8.00 µs  no
  producing from memory alone                                   -       2.00 µs                   
peak memory in the drain                                        -       75 MiB   at most 80 MiB   yes
from the process's start to the first message                   0.40 s  -        at most 0.15 s   -
CPU per message, 64 tables over one: drain                      -       1.30     at most 1.05     no
`
	if alone.String() != wantAlone || both.String() != wantBoth {
		t.Errorf("%s%s", &alone, &both)
	}
	clear(figures.of)
	figures.of["start"], figures.of["produce-cpu"] = []float64{.1}, []float64{2}
	var part strings.Builder
	testkit.Must(t, printTargets(&part, false))
	if text := part.String(); !strings.Contains(text, "in the drain, MySQL: producing from memory alone  2.00 µs") || !strings.Contains(text, "0.10 s") || !strings.Contains(text, "not measured:\n  drain until SENT, MySQL") {
		t.Errorf("%s", text)
	}
}
