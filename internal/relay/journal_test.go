package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/ack"
	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// journalState is a State with records of a journal, one for each list of tables.
type journalState struct {
	State
	records [][]string
	left    map[outbox.Identity]bool
}

func (s journalState) SetLeft(id outbox.Identity, left bool) bool {
	was := s.left[id]
	s.left[id] = left
	return was != left
}

func (s journalState) IsLeft(id outbox.Identity) bool { return s.left[id] }

func (s journalState) Records() (numbers []uint64, err error) {
	for n := range s.records {
		numbers = append(numbers, uint64(n))
	}
	return numbers, nil
}

func (s journalState) Sent(record uint64, rows []outbox.Completion) ([]outbox.Completion, error) {
	for n, table := range s.records[record] {
		rows = append(rows, outbox.Completion{Identity: outbox.Identity{Table: table, ID: fmt.Sprint(record, "-", n)}, Since: time.Now()})
	}
	return rows, nil
}

func (journalState) Pause() *outbox.Pause { return nil }

// withJournal is a relay that has taken a journal over.
func withJournal(t *testing.T, leaves func(string) bool, records ...[]string) (r *Relay, got []outbox.Completion, logs *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	reader := func(canal.Handler) Reader { return nil } // it does not run
	r = New(Parts{LogOnly: map[string]bool{"shop.log": true}, Reader: reader, State: journalState{records: records, left: map[outbox.Identity]bool{}}},
		Settings{Fallback: fallback.Config{Tables: []string{"shop.a"}}, Ack: ack.Config{Leaves: leaves, LeaveFrom: 3}}, zap.New(core), prometheus.NewRegistry())
	if err := r.build(outbox.MySQL, outbox.Position{}); err != nil {
		t.Fatal(err)
	}
	got, err := r.ownJournal()
	if err != nil {
		t.Fatal(err)
	}
	return r, got, logs
}

// The journal has rows of a table that was removed from the configuration: one line for the table says how many and what to do. Rows of the
// other tables are written.
func TestG43_JournalOfATableThatWasRemoved(t *testing.T) {
	_, got, logs := withJournal(t, nil, []string{"shop.gone", "shop.a", "shop.gone", "shop.log", "shop.old"})
	if len(got) != 2 || got[0].ID != "0-1" || got[1].ID != "0-3" || !got[1].LogOnly {
		t.Errorf("entries %+v", got)
	}
	if lines := logs.All(); len(lines) != 2 || lines[0].ContextMap()["table"] != "shop.gone" || lines[0].ContextMap()["rows"] != int64(2) || lines[0].Level != zap.WarnLevel {
		t.Errorf("log: %+v", lines)
	}
}

// Of a large journal most rows wait in it as they did before the start: a million of them have no place in memory. They have their owner.
func TestALargeJournalStaysOnTheDisk(t *testing.T) {
	records := [][]string{{"shop.a", "shop.a"}, {"shop.a", "shop.log"}, {"shop.a", "shop.gone", "shop.log", "shop.a"}, {"shop.log"}}
	// What an earlier process has left may be of a configuration with which this one would leave nothing.
	for name, leaves := range map[string]func(string) bool{
		"left": func(string) bool { return true }, "ordered since": func(string) bool { return false }, "with a standby since": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r, got, _ := withJournal(t, leaves, records...)
			var ids []string
			for _, e := range got {
				ids = append(ids, e.ID)
			}
			if !slices.Equal(ids, []string{"0-0", "0-1", "1-0", "1-1", "2-2", "3-0"}) {
				t.Errorf("in memory: %v", ids)
			}
			for _, id := range []string{"0-0", "2-0", "2-3", "3-0"} {
				table := map[bool]string{true: "shop.log", false: "shop.a"}[id == "3-0"]
				if !r.tracker.Owns(outbox.Identity{Table: table, ID: id}) {
					t.Errorf("row %s has no owner", id)
				}
			}
			if r.tracker.Left() != 2 || r.Acks.Pending() != 2 {
				t.Errorf("%d rows are left, %d pending, want 2", r.tracker.Left(), r.Acks.Pending())
			}
		})
	}
}
