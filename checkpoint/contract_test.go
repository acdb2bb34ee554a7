package checkpoint

import (
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A state directory of the build of 2026-11-23 opens with all that it holds (docs/compatibility.md). The records are what that build wrote, one of each
// kind: key and value. A record that is changed must keep this test green; a new kind gets a fixture of its own.
func TestContractState(t *testing.T) {
	text, err := os.ReadFile("testdata/state-2026-11-23.txt")
	fatal(t, err)
	files := vfs.NewMem()
	fatal(t, openMem(t, files).Close()) // an empty one, whose records give way
	db, err := pebble.Open(stateDir+"/db", &pebble.Options{FS: files, FormatMajorVersion: pebble.FormatNewest})
	fatal(t, err)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		k, err := hex.DecodeString(key)
		fatal(t, err)
		v, err := hex.DecodeString(value)
		fatal(t, err)
		fatal(t, db.Set(k, v, pebble.Sync))
	}
	fatal(t, db.Close())

	s := openMem(t, files)
	defer func() { fatal(t, s.Close()) }()
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	at := time.Date(2026, 11, 23, 20, 0, 0, 0, time.UTC)
	id := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 7}
	row := func(n int) outbox.Identity {
		return outbox.Identity{Table: "shop.t_local_message", ID: fmt.Sprint(n), MessageID: fmt.Sprint("order:", n)}
	}
	source, _ := s.Source()
	same("source", source, id)
	position, _ := s.Checkpoint()
	same("checkpoint", position, outbox.Position{File: "binlog.000042", Offset: 4096, GTIDs: id.UUID + ":1-9"})
	journal, err := s.Journal()
	fatal(t, err)
	var sent []string
	for _, c := range journal {
		sent = append(sent, c.MessageID+" "+c.BrokerID)
	}
	same("journal", sent, []string{"order:41 orders-0@7", "order:43 "})
	history, err := s.History()
	fatal(t, err)
	same("history", []any{len(history), history[0].Reason, history[0].Source}, []any{1, "gap: first_start", id})
	gaps, err := s.Gaps()
	fatal(t, err)
	same("gaps", []any{len(gaps), gaps[0].Acknowledged, gaps[1].Cause, gaps[1].At}, []any{2, true, outbox.GapPurged, at})
	same("pause", *s.Pause(), outbox.Pause{By: "alice", Since: at, Reason: "moving a topic"})
	changes, err := s.Changes.All()
	fatal(t, err)
	same("changes", changes, []Change{{Number: 1, At: at, By: "alice", What: "pause", Before: "working", After: "paused"}})
	wait, known := s.Waits.Wait(row(50))
	same("wait", []any{known, wait.Due.UTC(), wait.Attempts}, []any{true, at.AddDate(20, 0, 0), 3})
	again, err := s.Waits.Redeliveries()
	fatal(t, err)
	same("redeliveries", []any{len(again), again[0].Identity, again[0].Attempts}, []any{1, row(51), 2})
	schemas, err := s.Schemas.All()
	fatal(t, err)
	same("schemas", schemas, map[string][]byte{"shop.t_local_message": []byte(`{"columns":["id"]}`)})
	day, err := s.Digest.Day()
	fatal(t, err)
	same("digest", []any{day.Since, day.Failed, day.Again}, []any{at, 4, 1})
	var past []string
	fatal(t, s.Past.All(func(slot uint64, piece []byte) { past = append(past, fmt.Sprint(slot, " ", string(piece))) }))
	same("measurements", past, []string{"3 a measurement"})
}
