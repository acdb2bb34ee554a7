package relay

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/canal-outbox/canal-outbox/canal"
	"github.com/canal-outbox/canal-outbox/fallback"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// The journal has rows of a table that was removed from the configuration: one line for the table says how many and what to do. Rows of the
// other tables are written.
func TestG43_JournalOfATableThatWasRemoved(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	reader := func(canal.Handler) Reader { return nil } // it does not run
	r := New(Parts{LogOnly: map[string]bool{"shop.log": true}, Reader: reader}, Settings{Fallback: fallback.Config{Tables: []string{"shop.a"}}}, zap.New(core), prometheus.NewRegistry())
	var entries []outbox.Completion
	for n, table := range []string{"shop.gone", "shop.a", "shop.gone", "shop.log", "shop.old"} {
		entries = append(entries, outbox.Completion{Identity: outbox.Identity{Table: table, ID: fmt.Sprint(n)}})
	}
	got := r.ofMappedTables(entries)
	if len(got) != 2 || got[0].ID != "1" || got[1].ID != "3" {
		t.Errorf("entries %+v", got)
	}
	if lines := logs.All(); len(lines) != 2 || lines[0].ContextMap()["table"] != "shop.gone" || lines[0].ContextMap()["rows"] != int64(2) || lines[0].Level != zap.WarnLevel {
		t.Errorf("log: %+v", lines)
	}
}
