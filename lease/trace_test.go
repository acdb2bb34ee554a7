package lease

import (
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease/protocol"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// identity is the name of the server of the table.
func identity(t *testing.T, table *Table) (id server.ID) {
	t.Helper()
	info, err := server.Inspect(t.Context(), table.db)
	testkit.Must(t, err)
	return info.ID
}

// A11: traces have the server that answers, where the holder has worked, and since when its row is not renewed. Rows without a position, and
// rows that no relay has written, have none; a server without the table has none either.
func TestA11_Traces(t *testing.T) {
	onBoth(t, func(t *testing.T, table *Table) {
		ctx := t.Context()
		here := identity(t, table)
		testkit.Must(t, table.Begin(ctx, "birth", 0))
		const leaseTime = 15 * time.Second
		next := Record{Holder: "one", Process: protocol.Process("boot", "random", leaseTime), Tables: []string{"shop.a"}}
		testkit.Must(t, table.Take(ctx, takes(view(t, table), next), leaseTime))
		list, err := table.Traces(ctx)
		if err != nil || len(list) != 0 {
			t.Fatalf("without a position: %+v, %v", list, err)
		}
		v := view(t, table)
		own := protocol.Acquisition{Term: 1, Process: next.Process, Tables: next.Tables, Server: v.Server}
		at := Resume{Source: here, At: outbox.Position{File: "log.1", Offset: 9}}
		renewed, err := table.Renew(ctx, own, at, leaseTime)
		if err != nil || !renewed {
			t.Fatalf("renewed: %v, %v", renewed, err)
		}
		trace := func() Trace {
			t.Helper()
			list, err := table.Traces(ctx)
			testkit.Must(t, err)
			if len(list) != 1 {
				t.Fatalf("traces %+v", list)
			}
			return list[0]
		}
		one := trace()
		if one.On != here.UUID || one.Source != at.Source || one.At != at.At || one.Released || one.Age < 0 || one.Age > 10*time.Minute {
			t.Errorf("renewed: %+v", one)
		}
		_, err = table.db.ExecContext(ctx, "UPDATE "+table.name+" SET expires_at = expires_at - INTERVAL 1 HOUR WHERE epoch = 1")
		testkit.Must(t, err)
		if here.Flavor == outbox.MySQL { // a copy does not become younger by a relay that has not accepted it
			elsewhere := Resume{Source: server.ID{Flavor: outbox.MySQL, UUID: "another", ServerID: here.ServerID}, At: outbox.Position{File: "log.1", Offset: 99}}
			if held, err := table.Renew(ctx, own, elsewhere, leaseTime); err != nil || held {
				t.Errorf("renewed with the position of another server: %v, %v", held, err)
			}
			testkit.Must(t, table.Release(ctx, own, elsewhere))
		}
		if old := trace(); old.Age-one.Age < 59*time.Minute || old.At != at.At || old.Released {
			t.Errorf("an hour older: %+v, before %+v", old, one)
		}
		testkit.Must(t, table.Release(ctx, own, Resume{}))
		if one := trace(); !one.Released || one.Age != 0 {
			t.Errorf("released: %+v", one)
		}
		_, err = table.db.ExecContext(ctx, "INSERT INTO "+table.name+" (epoch, holder, process, host, table_names, source, log_file, gtid_set) VALUES (9, '', '', '', '[]', 'no JSON', 'log.1', '')")
		testkit.Must(t, err)
		trace()
		_, err = table.db.ExecContext(ctx, "DROP TABLE "+table.name)
		testkit.Must(t, err)
		if list, err := table.Traces(ctx); err != nil || list != nil {
			t.Errorf("without the table: %+v, %v", list, err)
		}
	})
}
