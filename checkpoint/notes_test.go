package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Notes stay over a restart and a cut line, and are bounded in rows and bytes: the oldest go.
func TestG44_NotesAreBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "failures.jsonl")
	row := func(n int) outbox.Identity {
		return outbox.Identity{Table: "shop.t", ID: fmt.Sprint(n), MessageID: fmt.Sprintf("order<%d>", n)}
	}
	add := func(notes *Notes, n, copies int, detail string) {
		t.Helper()
		list := make([]Note, copies)
		for i := range list {
			list[i] = Note{At: time.Unix(1, 0), Table: "shop.t", ID: row(n).ID, MessageID: row(n).MessageID, What: "refused", Detail: detail}
		}
		if err := notes.Add(list); err != nil {
			t.Fatal(err)
		}
	}
	count := func(n int) int {
		t.Helper()
		found, err := NewNotes(dir, "failures").Of(row(n))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	add(NewNotes(dir, "failures"), 1, 3, "x")
	if err := os.WriteFile(path, append(textOf(t, path), `{"at":"cut`+"\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	again := NewNotes(dir, "failures")
	add(again, 2, 1, "x")
	if count(1) != 3 || count(2) != 1 || count(12) != 0 {
		t.Fatalf("after a restart: %d, %d and %d notes", count(1), count(2), count(12))
	}
	add(again, 3, notesRows-4, "")
	add(again, 4, 1, strings.Repeat("x", notesBytes/2)) // the second file
	add(again, 5, 1, strings.Repeat("x", notesBytes/2)) // and a third
	if count(1) != 0 || count(4) != 1 || count(5) != 1 {
		t.Errorf("%d notes of row 1, %d of 4, %d of 5", count(1), count(4), count(5))
	}
	for _, p := range []string{path, path + ".old"} {
		if info, err := os.Stat(p); err != nil || info.Size() > notesBytes {
			t.Errorf("%s: %v %v", p, info, err)
		}
	}
}

func textOf(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A note is written as encoding/json writes it, whatever its texts are.
func TestNotesAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string {
			return rapid.OneOf(rapid.String(), rapid.Just("plain"), rapid.Just(`a "b" \ <c> & `+"\u2028\x00\xff")).Draw(t, label)
		}
		n := Note{
			At: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "at")).UTC(), Table: text("table"), ID: text("id"), MessageID: text("message id"),
			What: text("what"), Detail: text("detail"), Relay: text("relay"),
		}
		want, err := json.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.appendJSON(nil); string(got) != string(want) {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
