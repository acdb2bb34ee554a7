package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Fault is one error in a configuration.
type Fault struct {
	Path   string // in YAML terms, such as tables[0].name; "" when it is about the file
	Value  string // as written, masked where it is or may hold a secret; "" when there is none to show
	Reason string // what is wrong with it, and what to write instead
	Line   int    // in the file; 0 when the value is not in the file
	Column int    // of the key, from 1
	Source string // the environment variable that set the value, or ""
	Key    string // an unknown key as written in the file, to be shown with a caret
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
		// Only the key is shown: a misspelt key may precede a secret.
		indent := strings.Repeat(" ", max(0, f.Column-1))
		fmt.Fprintf(&b, "\n%7d | %s%s:\n        | %s^", f.Line, indent, f.Key, indent)
	}
	return b.String()
}

// Faults is the error of a configuration that cannot be used: all of its errors.
type Faults struct {
	File   string
	Faults []Fault // in the order of the file; those without a line come last
}

// Error lists the faults, one per line.
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

// report collects faults and the source of each value, so that later checks can name it.
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

// add adds a fault. Faults below a path that has one are left out: they would only be consequences.
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

// withoutUser removes the part before an @: people write user:password@host where only a host is needed.
func withoutUser(value string) string {
	if i := strings.LastIndexByte(value, '@'); i > 0 {
		return setting.Mask + value[i:]
	}
	return value
}

// err returns nil or a *Faults.
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
