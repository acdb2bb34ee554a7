package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Each failed message is a line with all that it takes to send it by hand. What a crash has cut is a line of its own.
func TestFailedLog(t *testing.T) {
	dir := t.TempDir()
	log := NewFailedLog(dir)
	row := func(id string, body []byte) outbox.Completion {
		m := &outbox.Message{Topic: "orders", Key: "k", Body: body, Headers: []outbox.Header{{Name: "id", Value: id}}}
		return outbox.Completion{
			Identity: outbox.Identity{Table: "shop.outboxevent", ID: id, MessageID: id}, Action: outbox.ActionFail,
			Class: outbox.ClassPermanent, Reason: "too large", LogOnly: true, Message: m,
		}
	}
	write := func(rows ...outbox.Completion) {
		t.Helper()
		if err := log.Append("shop.outboxevent", rows); err != nil {
			t.Fatal(err)
		}
	}
	write(row("1", []byte("text\n")), row("2", nil), row("3", []byte{0xff, 0}))
	path := log.Path("shop.outboxevent")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(`{"at":"cut`)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	write(row("4", []byte{}))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d lines: %s", len(lines), text)
	}
	for i, want := range map[int]string{0: `"body":"text\n"`, 1: `"body":null`, 2: `"body":null,"body_base64":"/wA="`, 4: `"body":""`} {
		var m FailedMessage
		if err := json.Unmarshal([]byte(lines[i]), &m); err != nil {
			t.Error(err)
		}
		if m.Reason != "too large" || m.Topic != "orders" || m.Key != "k" || m.Class != "permanent" || m.At.IsZero() || len(m.Headers) != 1 || !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s", i+1, lines[i])
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if err := NewFailedLog(path).Append("shop.outboxevent", []outbox.Completion{row("5", nil)}); !errors.Is(err, fs.ErrInvalid) && err == nil {
		t.Error("a log that cannot be written says nothing")
	}
}
