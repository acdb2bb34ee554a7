package server

import "slices"

// Severity of a Finding.
type Severity string

const (
	OK      Severity = "ok"
	Warning Severity = "warning" // works, at a cost that What names
	Fault   Severity = "fault"   // must be fixed before a start

	NotChecked Severity = "not checked" // What names the privilege that is missing, or the lock
)

// Finding is one line of a check before the start (doctor, run).
type Finding struct {
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // what was looked at: "shop.t_local_message.status", "grants"
	What     string   `json:"what"`    // what was found, and what follows from it
	Fix      string   `json:"fix,omitempty"`
	SQL      string   `json:"sql,omitempty"` // the statements of Fix, separated by ";" and a line end, where Fix is nothing else
}

// HasFault reports whether a start is impossible.
func HasFault(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Fault })
}
