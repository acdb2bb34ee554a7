package canal

import (
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

// A table map with types only ends after its NULL bitmap, whatever the number of columns: MariaDB writes it so by default.
func TestTableMapWithoutNames(t *testing.T) {
	for columns := 1; columns <= 33; columns++ {
		body := make([]byte, 8)
		body = append(body, "\x04shop\x00\x06outbox\x00"...)
		body = append(body, byte(columns))
		body = append(body, make([]byte, columns)...)       // types
		body = append(body, 0)                              // type metadata
		body = append(body, make([]byte, (columns+7)/8)...) // NULL bitmap
		tm := &replication.TableMapEvent{Schema: []byte("shop"), Table: []byte("outbox"), ColumnCount: uint64(columns)}
		for _, want := range []string{"", "\x01\x01\x80"} { // signedness
			got, err := optionalMetadata(append(body[:len(body):len(body)], want...), tm)
			if err != nil || string(got) != want {
				t.Errorf("%d columns: %x, %v; want %x", columns, got, err, want)
			}
		}
		if _, err := optionalMetadata(body[:len(body)-1], tm); err == nil {
			t.Errorf("%d columns: a map that is cut short is taken", columns)
		}
	}
}
