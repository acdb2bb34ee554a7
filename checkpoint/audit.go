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
	Before string    `json:"before,omitempty"` // what stood there
	After  string    `json:"after,omitempty"`
	Error  string    `json:"error,omitempty"` // why it went wrong in the middle
	// Unfinished is a change that was begun and whose end is not recorded: it is under way, or its process ended in the middle.
	Unfinished bool `json:"unfinished,omitempty"`
}

// maxChanges bounds the list; the oldest goes first. The log has all of them.
const maxChanges = 1000

// AddChange records a change of a person durably: a new one, whose number it fills in, or with a number the end of that one.
func (s *Store) AddChange(c *Change) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	number := c.Number
	if number == 0 {
		number = s.lastChange + 1
	}
	record := *c
	record.Number = number
	if err := s.putJSON(numberedKey(nil, kindChange, number), record); err != nil {
		return err
	}
	if c.Number == 0 && number > maxChanges {
		if err := s.batch.Delete(numberedKey(nil, kindChange, number-maxChanges), nil); err != nil {
			return err
		}
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.state.Lock()
	defer s.state.Unlock()
	c.Number, s.lastChange = number, max(s.lastChange, number)
	return nil
}

// Changes returns what people did, newest first.
func (s *Store) Changes() ([]Change, error) {
	var out []Change
	err := s.scan(kindChange, kindChange, func(key, value []byte) error {
		var c Change
		err := decodeJSON(key, value, &c)
		out = append(out, c)
		return err
	})
	slices.Reverse(out)
	return out, err
}
