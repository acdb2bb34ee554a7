package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Note is something that happened to a message and that its row does not keep.
type Note struct {
	At        time.Time `json:"at"` // by our clock
	Table     string    `json:"table"`
	ID        string    `json:"id"`
	MessageID string    `json:"message_id"`
	What      string    `json:"what"`
	Detail    string    `json:"detail"`
	Relay     string    `json:"relay"` // which wrote the note
}

// appendJSON appends the note as encoding/json does, for a fraction of the time: a sweep notes each row that it sends.
func (n *Note) appendJSON(b []byte) []byte {
	b = append(n.At.AppendFormat(append(b, `{"at":"`...), time.RFC3339Nano), '"')
	for _, field := range [...]struct{ name, text string }{
		{`,"table":`, n.Table}, {`,"id":`, n.ID}, {`,"message_id":`, n.MessageID}, {`,"what":`, n.What}, {`,"detail":`, n.Detail}, {`,"relay":`, n.Relay},
	} {
		b = appendString(append(b, field.name...), field.text)
	}
	return append(b, '}')
}

// appendString appends a JSON string.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(text) // a string always has a form
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// Notes is a bounded list of notes: a file of JSON lines next to the store. A full file takes the place of the one before, whose notes go.
// Notes are not synced: a crash of the machine may lose the last ones. Every method may be called from several goroutines.
type Notes struct {
	path string

	mu    sync.Mutex
	bytes int64
	rows  int
	known bool // bytes and rows are those of the file
}

// Each of the two files of a list has at most this size.
const (
	notesBytes = 4 << 20
	notesRows  = 20_000
)

// NewNotes is a list of a state directory. It does no I/O.
func NewNotes(dir, name string) *Notes { return &Notes{path: filepath.Join(dir, name+".jsonl")} }

// Add appends notes.
func (n *Notes) Add(list []Note) error {
	var lines []byte
	for i := range list {
		lines = append(list[i].appendJSON(lines), '\n')
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.write(lines, len(list)); err != nil {
		return fmt.Errorf("note on a message: %w", err)
	}
	return nil
}

// write appends lines to the file, or to a new one when it is full. Callers hold mu.
func (n *Notes) write(lines []byte, rows int) (err error) {
	if !n.known {
		if err := n.count(); err != nil {
			return err
		}
	}
	if n.rows > 0 && (n.rows+rows > notesRows || n.bytes+int64(len(lines)) > notesBytes) {
		if err := os.Rename(n.path, n.path+".old"); err != nil {
			return err
		}
		n.bytes, n.rows = 0, 0
	}
	file, err := os.OpenFile(n.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(lines); err != nil {
		n.known = false
		return err
	}
	n.bytes, n.rows = n.bytes+int64(len(lines)), n.rows+rows
	return nil
}

// count looks at the file of an earlier run. Callers hold mu.
func (n *Notes) count() error {
	text, err := os.ReadFile(n.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	n.bytes, n.rows, n.known = int64(len(text)), bytes.Count(text, []byte{'\n'}), true
	return nil
}

// Of returns the notes on a row, the oldest first. A line that a crash has cut is left out.
func (n *Notes) Of(row outbox.Identity) (found []Note, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, path := range []string{n.path + ".old", n.path} {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("notes on a message: %w", err)
		}
		id, err := json.Marshal(row.MessageID)
		if err != nil {
			return nil, fmt.Errorf("notes on a message: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, notesBytes)
		for lines.Scan() {
			var one Note
			if !bytes.Contains(lines.Bytes(), id) || json.Unmarshal(lines.Bytes(), &one) != nil {
				continue
			}
			if row == (outbox.Identity{Table: one.Table, ID: one.ID, MessageID: one.MessageID}) {
				found = append(found, one)
			}
		}
	}
	return found, nil
}
