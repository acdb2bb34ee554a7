package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Signs are the signs of life in a state directory, by its path. They are in a file of their own next to the store, which is replaced and not
// synced: a crash of the machine may leave an older one.
type Signs string

func (s Signs) file() string { return filepath.Join(string(s), "life.json") }

// Read returns what the last process left that did not stop cleanly; false when there is none.
func (s Signs) Read() (life outbox.Life, found bool, err error) {
	text, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return life, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &life)
	}
	if err != nil {
		return life, false, fmt.Errorf("read the last sign of life: %w", err)
	}
	return life, true, nil
}

// Write replaces what is there.
func (s Signs) Write(life outbox.Life) error {
	text, err := json.Marshal(life)
	if err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	if err := os.WriteFile(s.file()+".new", text, 0o600); err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	if err := os.Rename(s.file()+".new", s.file()); err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	return nil
}

// Remove removes it: a stop was clean, or rows are to be sent again that a read-back would find.
func (s Signs) Remove() error {
	if err := os.Remove(s.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the last sign of life: %w", err)
	}
	return nil
}
