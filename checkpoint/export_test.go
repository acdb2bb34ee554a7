package checkpoint

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// whole is what an export has to bring over.
type whole struct {
	Checkpoint outbox.Position
	Source     server.ID
	Journal    []outbox.Completion
	History    []Entry
	Gaps       []outbox.Gap
	Wait       table.Wait
	Again      []table.Waiting
	Pause      *outbox.Pause
	OpenGaps   int
}

func contentsOf(t *testing.T, s *Store, waits outbox.Identity) (c whole) {
	t.Helper()
	var err error
	c.Checkpoint, _ = s.Checkpoint()
	c.Source, _ = s.Source()
	c.Journal, err = s.Journal()
	fatal(t, err)
	c.History, err = s.History()
	fatal(t, err)
	c.Gaps, err = s.Gaps()
	fatal(t, err)
	c.Wait, _ = s.Waits.Wait(waits)
	c.Again, err = s.Waits.Redeliveries()
	fatal(t, err)
	c.Pause, c.OpenGaps = s.Pause(), s.Stats().UnacknowledgedGaps
	return c
}

// An exported state is imported, identities of bytes included, and the store continues from there. A truncated or changed export
// is refused.
func TestExportAndImport(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	var out bytes.Buffer
	if err := s.Export(&out); err == nil || out.Len() != 0 {
		t.Errorf("an empty state was exported: %v", err)
	}
	id := server.ID{Flavor: outbox.MySQL, UUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562", ServerID: 1}
	fatal(t, s.Reset(id, *at(100), 0, "test"))
	odd := outbox.Identity{Table: "shop.t", ID: "\xff\x00\n", MessageID: "\xfe\""}
	fatal(t, s.Commit([]outbox.Completion{
		{Identity: odd, Action: outbox.ActionMarkSent, BrokerID: "b"},
		{Identity: outbox.Identity{Table: "shop.t", ID: "2", MessageID: "m"}, Action: outbox.ActionMarkSent},
	}, nil, at(200), 0))
	_, err := s.AddGap(outbox.Gap{From: *at(1), To: *at(2), Cause: outbox.GapPurged})
	fatal(t, err)
	fatal(t, s.Waits.Keep([]table.Waiting{{Identity: odd, Wait: table.Wait{Due: time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond), Attempts: 3}}}, nil))
	fatal(t, s.Waits.KeepRedeliveries([]table.Waiting{{Identity: odd, Wait: table.Wait{Due: time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond), Attempts: 2}}}, nil))
	fatal(t, s.SetPause(&outbox.Pause{By: "operator", Since: time.Now().UTC().Truncate(time.Second)}))
	want := contentsOf(t, s, odd)
	fatal(t, s.Export(&out))
	fatal(t, s.Close())

	text := out.String()
	state, err := ReadState(strings.NewReader(text))
	fatal(t, err)
	if journal, waits := state.Rows(); journal != 2 || waits != 1 {
		t.Errorf("%d rows in the journal and %d that wait", journal, waits)
	}
	files := vfs.NewMem()
	s = openMem(t, files)
	fatal(t, s.Import(state))
	fatal(t, s.Close())
	s = openMem(t, files)
	got := contentsOf(t, s, odd)
	if n := len(got.History); n != len(want.History)+1 || !strings.HasPrefix(got.History[0].Reason, "imported: ") || got.History[0].Number <= want.History[0].Number {
		t.Errorf("the history begins with %+v", got.History[0])
	} else {
		got.History = got.History[1:]
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("imported\n%+v\nexported\n%+v", got, want)
	}
	if err := s.Import(state); err == nil {
		t.Error("a state was imported over another one")
	}
	fatal(t, s.Commit(nil, nil, at(300), 0))
	if p, _ := s.Checkpoint(); p != *at(300) {
		t.Errorf("the checkpoint did not go on: %s", p)
	}
	fatal(t, s.Close())

	lines := strings.SplitAfter(text, "\n")
	for name, bad := range map[string]string{
		"nothing":            "",
		"no export":          `{"a": 1}`,
		"another form":       strings.Replace(text, exportFormat, "something", 1),
		"a later version":    strings.Replace(text, `"version":1`, `"version":2`, 1),
		"cut in a line":      text[:len(text)-3],
		"cut between lines":  strings.Join(lines[:len(lines)-2], ""),
		"a line is missing":  strings.Join(append(append([]string{}, lines[:1]...), lines[2:]...), ""),
		"goes on":            text + "{}",
		"an unknown record":  strings.Replace(text, `{"gap"`, `{"gasp"`, 1),
		"an empty record":    strings.Replace(text, lines[1], "{}\n", 1),
		"two in one":         strings.Replace(text, `"journal":`, `"pause":{"by":"x","since":"2026-01-02T03:04:05Z","reason":""},"journal":`, 1),
		"an id is no base64": strings.Replace(text, `"id":"`, `"id":"*`, 1),
	} {
		if _, err := ReadState(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}
