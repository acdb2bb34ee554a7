package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

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

// sizes notes the lengths of rows by table and key. It asks for nothing where no row can be so long that it matters.
func (s *tables) sizes(ctx context.Context, t *mapped, chunk []outbox.Identity, into map[outbox.Identity]int64) error {
	query := table.Text("SELECT ", t.Column(table.ID))
	longest, measured := int64(0), 0
	for _, role := range t.Reads() {
		octets := t.Type(role).Octets
		if octets > 0 && octets <= 4096 || t.Type(role).Kind() == table.KindInteger || t.Type(role).Kind() == table.KindTime {
			longest += octets
			continue
		}
		longest, measured = longest+maxPiece, measured+1
		query.Add(", COALESCE(LENGTH(", t.Column(role), "), 0)")
	}
	if longest*int64(len(chunk)) <= maxPiece {
		return nil
	}
	t.FromKeys(query, len(chunk), func(i int) string { return chunk[i].ID })
	raw := make([]sql.RawBytes, 1+measured)
	scan := make([]any, len(raw))
	for i := range raw {
		scan[i] = &raw[i]
	}
	return query.Each(ctx, s.db, scan, func() error {
		size := int64(0)
		for _, text := range raw[1:] {
			n, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				return err
			}
			size += n
		}
		into[outbox.Identity{Table: t.Name(), ID: string(t.KeyText(table.ID, raw[0]))}] = size
		return nil
	})
}
