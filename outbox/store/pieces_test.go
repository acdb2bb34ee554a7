package store

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// G12: rows that are read whole together hold 16 MiB at most, up to a row as long as the server takes; the memory of a batch follows that, not
// the length of its rows.
func TestG12_ABatchIsReadInPieces(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		const rows, body = 32, 3 << 20
		ids := b.Insert(rows, "")
		testkit.Exec(b, b.DB, fmt.Sprintf("UPDATE %s SET message_body = REPEAT('x', %d)", b.Quoted, body))
		var packet int
		testkit.Must(b, b.DB.QueryRow("SELECT @@max_allowed_packet").Scan(&packet))
		longest := min(packet, 20<<20) - 1<<20 // room for the rest of the row, and for the test's own server
		testkit.Exec(b, b.DB, fmt.Sprintf("UPDATE %s SET message_body = REPEAT('y', %d) WHERE id = %s", b.Quoted, longest, ids[7].ID))
		var candidates []outbox.Candidate
		for _, id := range ids {
			candidates = append(candidates, outbox.Candidate{Identity: id, Status: outbox.Pending})
		}
		stamp, err := b.store.Claim(b.Ctx, candidates)
		testkit.Must(b, err)
		pieces, err := b.store.Pieces(b.Ctx, ids)
		testkit.Must(b, err)
		live := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before, read := live(), 0
		for _, piece := range pieces {
			messages, _, err := b.store.ReadBack(b.Ctx, stamp, piece)
			testkit.Must(b, err)
			read += len(messages)
			size := 0
			for _, m := range messages {
				size += len(m.Body)
			}
			if size > maxPiece && len(messages) > 1 {
				b.Errorf("%d rows of %d bytes are read together", len(messages), size)
			}
			// The driver keeps the buffer of the longest row for its connection.
			if grown := live() - before; grown > maxPiece+3*longest {
				b.Errorf("%d bytes are held where a piece has %d, of %d in all", grown, maxPiece, rows*body)
			}
			runtime.KeepAlive(messages)
		}
		if read != rows || len(pieces) < rows*body/maxPiece {
			b.Errorf("%d rows were read in %d pieces", read, len(pieces))
		}
	})
}

// G12: what moves into another table moves in transactions of as many bytes.
func TestG12_RowsMoveInPieces(t *testing.T) {
	onBoth(t, "outbox", func(b *bench) {
		b.MakeMoved(table.ArchiveSuffix)
		ids := keys(b.Insert(5, "status=2, created_at=NOW(3) - INTERVAL 50 DAY, updated_at=NOW(3) - INTERVAL 45 DAY, last_exec_time=NOW(3) - INTERVAL 40 DAY"))
		testkit.Exec(b, b.DB, fmt.Sprintf("UPDATE %s SET message_body=REPEAT('x', %d), updated_at=updated_at", b.Quoted, 7<<20))
		parts, err := b.store.expiring(b.Ctx, b.table, sentMoves, ids)
		testkit.Must(b, err)
		if len(parts) != 3 || len(parts[0]) != 2 {
			b.Errorf("transactions %v", parts)
		}
		if left := b.expire(sentMoves, ids); left.Rows != 5 || len(b.ids(table.ArchiveSuffix)) != 5 {
			b.Errorf("left %+v", left)
		}
	})
}

// G12: the length of rows is asked for only where a column may be long.
func TestG12_ShortColumnsAreNotMeasured(t *testing.T) {
	on(t, testkit.MariaDB, "outbox", func(b *bench) {
		testkit.Exec(b, b.DB, "ALTER TABLE "+b.Quoted+" MODIFY message_body VARCHAR(1024), MODIFY headers VARCHAR(1024)")
		b.Load(b.Mapping("outbox"))
		ids := b.InsertMany(500)
		testkit.Must(b, b.store.db.Close()) // nothing is asked
		if pieces, err := b.store.Pieces(b.Ctx, ids); err != nil || len(pieces) != 1 {
			b.Errorf("%d pieces, %v", len(pieces), err)
		}
	})
}
