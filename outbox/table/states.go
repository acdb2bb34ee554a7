package table

import (
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// States that a listing accepts next to those of Table.States that are codes.
const (
	HeldState    = "held"    // rows with a code that the configuration does not name: the relay never sends them
	DelayedState = "delayed" // PENDING rows that are due later: delayed messages, and rows that wait after a refusal
)

// Code is a value of the status column: "" is none, "n" is NULL, else the text behind a "=".
type Code string

// NullCode is NULL.
const NullCode Code = "n"

// CodeOf is a text of the column.
func CodeOf(code string) Code { return Code("=" + code) }

// HasCode writes the condition that a row has a code.
func (t *Table) HasCode(s *Statement, code Code) {
	s.Add(t.Column(StatusCode))
	if code == NullCode {
		s.Add(" IS NULL")
		return
	}
	s.Add(" = ")
	t.Literal(s, string(code[1:]))
}

// StateName is what the mapping calls a code.
func (t *Table) StateName(status outbox.Status, code []byte) string {
	if status != outbox.Held {
		return status.String()
	}
	fold := t.columns[StatusCode].ignoresCase()
	for name, want := range t.mapping.States {
		if string(code) == want || fold && strings.EqualFold(string(code), want) {
			return name
		}
	}
	return ""
}

// States are the names by which rows can be listed: the statuses that this table has, the states that its mapping names, and at last held
// and delayed.
func (t *Table) States() (names []string) {
	for _, w := range t.mapping.Words() {
		names = append(names, w.Name)
	}
	if !t.Fails() {
		names = append(names, outbox.Failed.String())
	}
	return append(names, HeldState, DelayedState)
}
