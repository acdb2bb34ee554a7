package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Fault is one thing that is wrong in a configuration.
type Fault struct {
	Path   string // in YAML terms, such as tables[0].name; "" when it is about the file
	Value  string // as written, masked where it is or may hold a secret; "" when there is none to show
	Reason string // what is wrong with it, and what to write instead
	Line   int    // in the file; 0 when the value does not stand there
	Column int    // of the key, from 1
	Source string // the environment variable that set the value, or ""
	Key    string // an unknown key as it stands in the file, to be shown with a caret
}

func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Path)
	if f.Value != "" {
		fmt.Fprintf(&b, " = %q", f.Value)
	}
	switch {
	case f.Source != "":
		fmt.Fprintf(&b, " (from %s)", f.Source)
	case f.Line > 0 && f.Path == "":
		fmt.Fprintf(&b, "line %d, column %d", f.Line, f.Column)
	case f.Line > 0:
		fmt.Fprintf(&b, " (line %d, column %d)", f.Line, f.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(f.Reason)
	if f.Key != "" {
		// Only the key is shown: a misspelt key may stand before a secret.
		indent := strings.Repeat(" ", max(0, f.Column-1))
		fmt.Fprintf(&b, "\n%7d | %s%s:\n        | %s^", f.Line, indent, f.Key, indent)
	}
	return b.String()
}

// Faults is the error of a configuration that cannot be used: all that is wrong with it.
type Faults struct {
	File   string
	Faults []Fault // in the order of the file; those that stand in no line come last
}

// Error lists the faults, one below the other.
func (e *Faults) Error() string {
	var b strings.Builder
	noun := "faults"
	if len(e.Faults) == 1 {
		noun = "fault"
	}
	fmt.Fprintf(&b, "%s: %d %s", e.File, len(e.Faults), noun)
	for _, f := range e.Faults {
		b.WriteString("\n  " + strings.ReplaceAll(f.String(), "\n", "\n  "))
	}
	return b.String()
}

// place is where a value was set.
type place struct {
	line, column int
	source       string // environment variable
}

// report collects faults and remembers where each value was set, so that checks made later can say so.
type report struct {
	setting.Report // its keys are whole paths

	faults []Fault
	places map[string]place
}

func newReport() *report {
	r := &report{places: map[string]place{}}
	r.Report = setting.NewReport(func(path, value, reason string) { r.add(path, value, "%s", reason) })
	return r
}

// add notes a fault. Whatever lies below a path that is faulty already is left out: it would only be a consequence.
func (r *report) add(path, value, reason string, args ...any) {
	for _, f := range r.faults {
		if f.Path != "" && (path == f.Path || strings.HasPrefix(path, f.Path+".") || strings.HasPrefix(path, f.Path+"[")) {
			return
		}
	}
	at := r.places[path]
	r.faults = append(r.faults, Fault{
		Path: path, Value: withoutUser(value), Reason: fmt.Sprintf(reason, args...),
		Line: at.line, Column: at.column, Source: at.source,
	})
}

// withoutUser hides what stands before an @: people write user:password@host where only a host is wanted.
func withoutUser(value string) string {
	if i := strings.LastIndexByte(value, '@'); i > 0 {
		return setting.Mask + value[i:]
	}
	return value
}

// err returns nil or the *Faults.
func (r *report) err(file string) error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int {
		if (a.Line == 0) != (b.Line == 0) {
			return b.Line - a.Line
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &Faults{File: file, Faults: r.faults}
}
