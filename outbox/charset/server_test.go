package charset

import (
	"bytes"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// A49: each code of each set is what the servers make of it, and each character has the code that they give it.
func TestA49_EveryCodeAsTheServer(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		db := testkit.SharedDatabase(t, flavor)
		conn := db.Connect(t, db.CreateSchema(t))
		conn.SetMaxOpenConns(1)
		testkit.Exec(t, conn, "SET SESSION sql_mode = ''")
		for name := range supported {
			t.Run(fmt.Sprintf("%s %s", flavor, name), func(t *testing.T) {
				if name == "gb18030" && flavor == testkit.MariaDB {
					t.Skip("MariaDB does not have it")
				}
				set, _ := Named(name)
				fill(t, conn, "BLOB", codesOf(name))
				ask(t, conn, "SELECT CONVERT(CONVERT(v USING "+name+") USING utf8mb4), v FROM v", func(code, server []byte) {
					got, bad := set.Decode(nil, code)
					unknown := bytes.Count(server, []byte("?")) > bytes.Count(code, []byte("?"))
					switch {
					case flavor == testkit.MySQL && bad >= 0 && bytes.Equal(server, got[:bad]): // it ends before bytes that are no code at all
					case unknown != (bad >= 0), !bytes.Equal(got, server):
						t.Errorf("%x is %+q, bad at %d, for the server it is %+q", code, got, bad, server)
					}
				})
				fill(t, conn, "VARCHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", characters())
				ask(t, conn, "SELECT CAST(CONVERT(v USING "+name+") AS BINARY), v FROM v", func(char, server []byte) {
					r, _ := utf8.DecodeRune(char)
					got, ok := set.Encode(nil, string(char))
					has := r == '?' || string(server) != "?"
					if ok != has || ok && !bytes.Equal(got, server) || !has && set.Size(r) != 0 || has && set.Size(r) != len(server) {
						t.Errorf("U+%04X is %x (%v), size %d, for the server it is %x", r, got, ok, set.Size(r), server)
					}
				})
			})
		}
	}
}

// codesOf are all codes of one and two bytes, and for GB18030 those of four in the basic plane and some beyond.
func codesOf(name string) (codes []string) {
	for code := range 1 << 16 {
		if high := byte(code >> 8); high == 0 {
			codes = append(codes, string([]byte{byte(code)}))
		} else if high >= 0x80 {
			codes = append(codes, string([]byte{high, byte(code)}))
		}
	}
	if name != "gb18030" {
		return codes
	}
	four := func(n int) string {
		return string([]byte{byte(n/12600) + 0x81, byte(n/1260%10) + '0', byte(n/10%126) + 0x81, byte(n%10) + '0'})
	}
	for n := range 45_000 {
		codes = append(codes, four(n))
	}
	for n := 45_000; n < 126*12600; n += 97 {
		codes = append(codes, four(n))
	}
	return append(codes, four(supplementary-1), four(supplementary), four(supplementary+0xFFFFF), four(supplementary+0x100000))
}

// characters are those of the basic plane and some beyond.
func characters() (all []string) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if r > 0xFFFF {
			r += 96
		}
		if utf8.ValidRune(r) {
			all = append(all, string(r))
		}
	}
	return all
}

func fill(t *testing.T, conn *sql.DB, kind string, values []string) {
	t.Helper()
	testkit.Exec(t, conn, "DROP TABLE IF EXISTS v")
	testkit.Exec(t, conn, "CREATE TABLE v (id INT AUTO_INCREMENT PRIMARY KEY, v "+kind+")")
	for len(values) > 0 {
		n := min(len(values), 10_000)
		var rows strings.Builder
		for i, value := range values[:n] {
			if i > 0 {
				rows.WriteByte(',')
			}
			fmt.Fprintf(&rows, "(x'%x')", value)
		}
		testkit.Exec(t, conn, "INSERT INTO v (v) VALUES "+rows.String())
		values = values[n:]
	}
}

// ask calls each with a value and what the server makes of it.
func ask(t *testing.T, conn *sql.DB, query string, each func(value, answer []byte)) {
	t.Helper()
	rows, err := conn.Query(query)
	testkit.Must(t, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var value, answer []byte
		testkit.Must(t, rows.Scan(&answer, &value))
		each(value, answer)
	}
	testkit.Must(t, rows.Err())
	if n < 10_000 && !t.Failed() {
		t.Fatalf("%d rows", n)
	}
}
