package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// maxPiece is how many bytes rows hold that are read whole together; a row that is longer is read alone.
const maxPiece = 16 << 20

// Pieces divides rows into groups that are read whole one after the other, so that the rows of a group hold 16 MiB together at most; a row
// that is longer is in a group of its own. The order is kept. It asks the server for the length of each row, unless the columns bound it. A row
// that is gone, or whose length the server cannot show, counts as empty: what reads it says what is wrong.
func (s changes) Pieces(ctx context.Context, identities []outbox.Identity) ([][]outbox.Identity, error) {
	sizes := make(map[outbox.Identity]int64, len(identities))
	_, err := s.byKeyApart(identities, func(t *mapped, chunk []outbox.Identity) error { return s.sizes(ctx, t, chunk, sizes) })
	if err != nil {
		return nil, fmt.Errorf("read the length of rows: %w", err)
	}
	return pieces(identities, func(id outbox.Identity) int64 { return sizes[outbox.Identity{Table: id.Table, ID: id.ID}] }), nil
}

func pieces[R any](rows []R, size func(R) int64) (all [][]R) {
	begin, held := 0, int64(0)
	for i, row := range rows {
		n := size(row)
		if i > begin && held+n > maxPiece {
			all = append(all, rows[begin:i:i])
			begin, held = i, 0
		}
		held += n
	}
	if begin < len(rows) {
		all = append(all, rows[begin:])
	}
	return all
}

// sizes notes the lengths of rows by table and key. It asks for nothing where no row can be long enough to matter, and for the sum first: mostly
// one piece has all rows, and their lengths one by one are not needed.
func (s *tables) sizes(ctx context.Context, t *mapped, chunk []outbox.Identity, into map[outbox.Identity]int64) error {
	var lengths []string
	bounded := int64(0)
	for _, role := range t.Reads() {
		octets := t.Type(role).Octets
		if octets > 0 && octets <= 4096 || t.Type(role).Kind() == table.KindInteger || t.Type(role).Kind() == table.KindTime {
			bounded += octets
			continue
		}
		lengths = append(lengths, "COALESCE(LENGTH("+t.Column(role)+"), 0)")
	}
	if bounded*int64(len(chunk)) <= maxPiece && len(lengths) == 0 {
		return nil
	}
	length := strings.Join(append(lengths, strconv.FormatInt(bounded, 10)), " + ")
	whole, id := table.Text("SELECT COALESCE(SUM(", length, "), 0)"), func(i int) string { return chunk[i].ID }
	t.FromKeys(whole, len(chunk), id)
	var sum int64
	if err := whole.One(ctx, s.db, &sum); err != nil || sum <= maxPiece/8 { // there may be several chunks
		return err
	}
	each := table.Text("SELECT ", t.Column(table.ID), ", ", length)
	t.FromKeys(each, len(chunk), id)
	var key sql.RawBytes
	var size int64
	return each.Each(ctx, s.db, []any{&key, &size}, func() error {
		into[outbox.Identity{Table: t.Name(), ID: string(t.KeyText(table.ID, key))}] = size
		return nil
	})
}
