package checkpoint

import (
	"slices"
	"time"
)

// Change is one line of the list of what people did.
type Change struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`               // by our clock
	By     string    `json:"by"`               // a user of the machine, or what a request has shown
	What   string    `json:"what"`             // the command
	Before string    `json:"before,omitempty"` // the value before it
	After  string    `json:"after,omitempty"`
	Error  string    `json:"error,omitempty"` // why it went wrong in the middle
	// Unfinished is a change that was begun and whose end is not recorded: it is under way, or its process ended in the middle.
	Unfinished bool `json:"unfinished,omitempty"`
}

// maxChanges bounds the list; the oldest goes first. The log has all of them.
const maxChanges = 1000

// Changes is the list of what people did.
type Changes struct {
	files *engine
	last  uint64 // number of the newest
}

// Add records a change of a person durably: a new one, whose number it fills in, or with a number the end of that one.
func (l *Changes) Add(c *Change) error {
	record := *c
	return l.files.update(func(b *batch) error {
		if c.Number == 0 {
			record.Number = l.last + 1
		}
		if err := b.putJSON(numberedKey(nil, kindChange, record.Number), record); err != nil {
			return err
		}
		if c.Number == 0 && record.Number > maxChanges {
			return b.Delete(numberedKey(nil, kindChange, record.Number-maxChanges), nil)
		}
		return nil
	}, func() { c.Number, l.last = record.Number, max(l.last, record.Number) })
}

// All returns what people did, newest first.
func (l *Changes) All() ([]Change, error) {
	out, err := list(l.files, kindChange, decodeAs[Change])
	slices.Reverse(out)
	return out, err
}

// load takes a record over at the start.
func (l *Changes) load(key, value []byte) error {
	c, err := decodeAs[Change](key, value)
	l.last = max(l.last, c.Number)
	return err
}
