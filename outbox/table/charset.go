package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox/charset"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A column in a character set other than UTF-8 (A49). The log has its bytes, so the relay converts them (package charset), and a sweep reads the bytes too:
// both find the same message, and the same row to be none. In all other statements the server converts.

// set is the character set of a column whose bytes are not UTF-8; nil for all others.
func (c *ColumnType) set() *charset.Set {
	set, _ := charset.Named(c.Charset)
	return set
}

// readable reports whether the relay can read the column's text from the log.
func (c *ColumnType) readable() bool {
	_, known := charset.Named(c.Charset)
	return known
}

// sizes is how many bytes a character takes in the column; 0 for one that it cannot hold.
func (c *ColumnType) sizes() func(rune) int {
	highest := utf8.MaxRune
	switch c.Charset {
	case "utf8", "utf8mb3":
		highest = 0xFFFF
	case "ascii":
		highest = 0x7F
	}
	if set := c.set(); set != nil {
		return set.Size
	}
	return func(r rune) int {
		if r > highest {
			return 0
		}
		return utf8.RuneLen(r)
	}
}

// holds reports whether the column's character set has all characters of a valid text.
func (c *ColumnType) holds(text string) bool {
	if c.Charset == "utf8mb4" {
		return true
	}
	size := c.sizes()
	return !strings.ContainsFunc(text, func(r rune) bool { return size(r) == 0 })
}

// noText is before the bytes of a primary key that are no text in the column's set. No text begins with it.
const noText = "\xFF"

// KeyShown is the primary key as a SELECT shows it. Bytes that are no text would be shown with question marks, as another key; so they come as they are,
// behind noText: no statement but a cursor's names such a row.
func (t *Table) KeyShown() string {
	column, set := t.Column(ID), t.columns[ID].set()
	if set == nil {
		return column
	}
	return "IF(CAST(CONVERT(CONVERT(" + column + " USING utf8mb4) USING " + set.Name() + ") AS BINARY) = CAST(" + column + " AS BINARY), " +
		"CAST(CONVERT(" + column + " USING utf8mb4) AS BINARY), CONCAT(x'FF', CAST(" + column + " AS BINARY)))"
}

// stored is a column as the bytes that it stores, which are in a set; after an ALTER in another one, the text in UTF-8. isStoredIn says which of both.
func (t *Table) stored(role Column, set *charset.Set) string {
	return "IF(" + t.isStoredIn(role, set) + ", CAST(" + t.Column(role) + " AS BINARY), CAST(CONVERT(" + t.Column(role) + " USING utf8mb4) AS BINARY))"
}

func (t *Table) isStoredIn(role Column, set *charset.Set) string {
	return "CHARSET(" + t.Column(role) + ") = '" + set.Name() + "'"
}

// charsets says what a table in other character sets can hold.
func (c *check) charsets(t *Table) {
	roles := map[string][]string{}
	for role := range columnCount {
		column := t.columns[role]
		if column == nil || column.Charset == "utf8mb4" || column.sizes()('\U0001F600') > 0 {
			continue
		}
		if name := column.Name; !slices.Contains(roles[column.Charset], name) {
			roles[column.Charset] = append(roles[column.Charset], name)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(roles)) {
		c.add(server.OK, "", fmt.Sprintf("%s in %s: read as UTF-8; a character that %s does not have (such as %s) cannot be stored there, and the relay "+
			"writes ? in its place", strings.Join(roles[set], ", "), set, set, strings.Join(lacking(set), ", ")), "")
	}
}

// lacking are well-known characters that a set does not have.
func lacking(set string) (examples []string) {
	size := (&ColumnType{Charset: set}).sizes()
	for _, one := range []struct {
		char rune
		name string
	}{{'\u4E2D', "Chinese"}, {'\u20AC', "the euro sign"}, {'\U0001F600', "emoji"}} {
		if size(one.char) == 0 {
			examples = append(examples, one.name)
		}
	}
	return examples
}
