package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Life is what a process leaves in the state directory about its own time, for a read-back after a kill. It is a file of its own beside the
// store, which is replaced and not synced: a crash of the machine may leave an older one.
type Life struct {
	AliveAt   time.Time `json:"alive_at"`   // the last sign of life
	SettledAt time.Time `json:"settled_at"` // the journal has what was sent before
}

const lifeFile = "life.json"

// ReadLife returns what the last process left that did not stop cleanly; false when there is none.
func ReadLife(dir string) (life Life, found bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, lifeFile))
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
func (l Life) Write(dir string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	path := filepath.Join(dir, lifeFile)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write a sign of life: %w", err)
	}
	return nil
}

// RemoveLife removes it: a stop was clean, or rows are to be sent again that a read-back would find.
func RemoveLife(dir string) error {
	if err := os.Remove(filepath.Join(dir, lifeFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the last sign of life: %w", err)
	}
	return nil
}
