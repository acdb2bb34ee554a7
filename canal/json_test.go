package canal

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// jsonTexts are documents as clients write them.
func jsonTexts() []string {
	texts := []string{
		`{}`, `[]`, `null`, `true`, `false`, `"text"`, `0`, `-1`, `1.0`, `1e3`, `-0.0`, `65535`, `65536`, `-32768`, `-32769`,
		`2147483647`, `2147483648`, `-2147483649`, `9223372036854775807`, `-9223372036854775808`, `18446744073709551615`,
		`18446744073709551616`, `1.7976931348623157e308`, `5e-324`, `0.1`, `100000000000000`, `123456789012345678`,
		`{"b": 1, "a": {"zz": [1, 2, {"x": null}], "y": "\u00e9\u4e2d\ud83d\ude00"}, "long key with blanks": "v"}`,
		`{"q": "a\"b\\c/d\b\f\n\r\t\u0001\u001f\u007f"}`, `[[[[[[]]]]]]`, `["", {"": ""}]`,
		`{"a": 1.0, "b": 1.50, "c": 12345678901234567890123}`,
		`["` + strings.Repeat("x", 70_000) + `", 1]`, `{"k": [` + strings.TrimSuffix(strings.Repeat("70000,", 20_000), ",") + `]}`,
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for e := -30; e <= 30; e++ {
		texts = append(texts, strconv.FormatFloat(math.Pow10(e), 'e', -1, 64), strconv.FormatFloat(-rng.Float64()*math.Pow10(e), 'e', -1, 64))
	}
	for range 100 { // about as many digits as a double has
		texts = append(texts, strconv.FormatFloat(rng.Float64()*math.Pow10(14+rng.IntN(4)), 'e', -1, 64))
	}
	for range 200 {
		if f := math.Float64frombits(rng.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			texts = append(texts, strconv.FormatFloat(f, 'e', -1, 64))
		}
	}
	return texts
}

// A47: a JSON body from the log equals, byte for byte, what a SELECT returns.
func TestA47_JSONAsTheServerPrintsIt(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		flavor = testkit.Needs(t, flavor, "8.0", "digits behind the point of 1.0, which it prints as 1")
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec("ALTER TABLE t_local_message MODIFY COLUMN message_body JSON NOT NULL")
		l.load()
		l.start(l.end())
		texts := jsonTexts()
		for i, text := range texts {
			_, err := l.sql.Exec(insertRow, strconv.Itoa(i), text)
			testkit.Must(t, err)
		}
		if flavor == testkit.MySQL {
			l.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'decimal', 'orders', JSON_OBJECT('p', 12.50, 'n', -0.007, 'z', CAST(0 AS DECIMAL(65,30)), 'big', 12345678901234567890.123456789))")
			texts = append(texts, "")
		}
		l.published(len(texts))
		want := map[string]string{}
		rows, err := l.sql.Query("SELECT biz_key, message_body FROM t_local_message")
		testkit.Must(t, err)
		defer rows.Close()
		for rows.Next() {
			var key, body string
			testkit.Must(t, rows.Scan(&key, &body))
			want[key] = body
		}
		testkit.Must(t, rows.Err())
		for _, m := range l.rec.sent() {
			if got := string(m.Body); got != want[m.Key] {
				t.Errorf("row %s: log %.200s, table %.200s", m.Key, got, want[m.Key])
			}
		}
	})
}
