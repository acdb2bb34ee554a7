package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// FailedLog keeps messages that can never be sent, of tables that have no place for them: a file of JSON lines for each table,
// in the directory "failed" next to the store. A message in it is on the disk; after a crash it may be there twice.
//
// The zero value of a directory is not usable. Append may be called from several goroutines, for one table by one at a time.
type FailedLog struct{ dir string }

// NewFailedLog is that of a state directory. It does no I/O.
func NewFailedLog(dir string) FailedLog { return FailedLog{filepath.Join(dir, "failed")} }

// Path is the file of a table.
func (l FailedLog) Path(table string) string {
	return filepath.Join(l.dir, filepath.Base(table)+".jsonl")
}

// FailedMessage is a line of the log.
type FailedMessage struct {
	At         time.Time       `json:"at"`
	Table      string          `json:"table"`
	ID         string          `json:"id"`
	MessageID  string          `json:"message_id"`
	Topic      string          `json:"topic"`
	Key        string          `json:"key"`
	Headers    []outbox.Header `json:"headers"`
	Body       *string         `json:"body"`                  // null for NULL, and where it is no text
	BodyBase64 []byte          `json:"body_base64,omitempty"` // of a body that is no text
	Class      string          `json:"class"`
	Reason     string          `json:"reason"`
}

// Append writes failed rows of one table and returns when they are on the disk.
func (l FailedLog) Append(table string, rows []outbox.Completion) (err error) {
	var lines []byte
	for i := range rows {
		line, err := json.Marshal(failedMessage(&rows[i]))
		if err != nil {
			return fmt.Errorf("failed-message log: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := l.write(l.Path(table), lines); err != nil {
		return fmt.Errorf("failed-message log of %s: %w", table, err)
	}
	return nil
}

func (l FailedLog) write(path string, lines []byte) (err error) {
	_, statErr := os.Stat(path)
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if last := make([]byte, 1); info.Size() > 0 { // a crash has cut the last line
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	if _, err := file.Write(lines); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if statErr == nil {
		return nil
	}
	return errors.Join(syncDir(l.dir), syncDir(filepath.Dir(l.dir))) // the names are new
}

func syncDir(path string) (err error) {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func failedMessage(c *outbox.Completion) FailedMessage {
	m := c.Message
	f := FailedMessage{
		At: time.Now().UTC(), Table: c.Table, ID: c.ID, MessageID: c.MessageID, Topic: m.Topic, Key: m.Key, Headers: m.Headers,
		Class: c.Class.String(), Reason: c.Reason,
	}
	switch body := string(m.Body); {
	case m.Body == nil:
	case utf8.ValidString(body):
		f.Body = &body
	default:
		f.BodyBase64 = m.Body
	}
	return f
}
