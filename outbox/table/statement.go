package table

import (
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// maxRows is how many rows one statement names: the fastest size measured, and small enough for MariaDB to keep an IN
// list an IN list.
const maxRows = 500

// statement is SQL text with its arguments, in order. Names, integers and hexadecimal digits are in the text, everything else is an
// argument.
type statement struct {
	text strings.Builder
	args []any
}

func (s *statement) add(parts ...string) {
	for _, part := range parts {
		s.text.WriteString(part)
	}
}

// list writes "a, b, c", n times each.
func (s *statement) list(n int, each func(i int)) {
	for i := range n {
		if i > 0 {
			s.add(", ")
		}
		each(i)
	}
}

// string is an argument in the connection's character set.
func (s *statement) string(value string) {
	s.add("?")
	s.args = append(s.args, value)
}

// bytes is compared byte by byte with a binary expression. It stands in the text, in digits: an argument would cost two allocations.
func (s *statement) bytes(parts ...string) {
	const digits = "0123456789abcdef"
	s.add("x'")
	for _, part := range parts {
		for i := range len(part) {
			s.text.WriteByte(digits[part[i]>>4])
			s.text.WriteByte(digits[part[i]&15])
		}
	}
	s.add("'")
}

// micros is a number of microseconds.
func (s *statement) micros(d time.Duration) {
	s.add("?")
	s.args = append(s.args, d.Microseconds())
}

// exact is a column as bytes, so that case, accents and trailing spaces count whatever its collation; NULL is "".
func (t *Table) exact(role Column) string {
	column := t.column(role)
	if t.columns[role].isBytes() {
		column = "LOWER(HEX(" + column + "))"
	}
	return "COALESCE(CAST(" + column + " AS BINARY), '')"
}

// messageID is the message id of a row as bytes: the same text that Message makes.
func (t *Table) messageID() string {
	switch {
	case t.has(MessageID):
		return t.exact(MessageID)
	case t.appendID:
		return "CONCAT(" + t.exact(BizType) + ", ':', " + t.exact(Key) + ", ':', " + t.exact(ID) + ")"
	}
	return "CONCAT(" + t.exact(BizType) + ", ':', " + t.exact(Key) + ")"
}

// now is the database's clock in the zone of a column.
func (t *Table) now(role Column) string {
	zone := t.mapping.TimeZone
	if zone == "" || t.columns[role].DataType == "timestamp" {
		return "NOW(3)"
	}
	return "CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '" + strings.ReplaceAll(zone, "'", "''") + "')"
}

// zoneOf is the zone of a column.
func (t *Table) zoneOf(role Column) string {
	if t.mapping.TimeZone == "" || t.columns[role].DataType == "timestamp" {
		return "@@session.time_zone"
	}
	return "'" + strings.ReplaceAll(t.mapping.TimeZone, "'", "''") + "'"
}

// stamp is the claim stamp of a row as text; NULL where rows have none.
func (t *Table) stamp() string {
	if !t.has(LastExecTime) {
		return "NULL"
	}
	return "CAST(" + t.column(LastExecTime) + " AS CHAR)"
}

// retryCount is the count of a row; NULL is 0, as in a Message, and so is a count that the table does not keep.
func (t *Table) retryCount() string {
	if !t.has(RetryCount) {
		return "0"
	}
	return "COALESCE(" + t.column(RetryCount) + ", 0)"
}

// code is a status code as a literal that the index on the status column can use.
func (t *Table) code(s *statement, status outbox.Status) { t.literal(s, t.mapping.Codes[status]) }

// literal is a text of the status column.
func (t *Table) literal(s *statement, code string) {
	if t.columns[StatusCode].kindOf() == integer {
		s.add(code)
		return
	}
	s.string(code)
}

// statusIn writes "status IN (...)" of those that have a code in this table; PENDING always has one.
func (t *Table) statusIn(s *statement, list ...outbox.Status) {
	var codes []string
	for _, status := range list {
		if code := t.mapping.Codes[status]; code != "" {
			codes = append(codes, code)
		}
	}
	s.add(t.column(StatusCode), " IN (")
	s.list(len(codes), func(i int) { t.literal(s, codes[i]) })
	s.add(")")
}

// idIn writes "id IN (...)", the access path of every statement that touches rows.
func (t *Table) idIn(s *statement, n int, id func(i int) string) {
	s.add(t.column(ID), " IN (")
	s.list(n, func(i int) { t.id(s, id(i)) })
	s.add(")")
}

// assignCommon writes what every write adds to the columns that count and name writers, and say when.
func (t *Table) assignCommon(s *statement) {
	if t.has(LockVersion) {
		s.add(", ", t.column(LockVersion), " = ", t.column(LockVersion), " + 1")
	}
	if t.has(UpdatedBy) {
		s.add(", ", t.column(UpdatedBy), " = ")
		s.string(t.columns[UpdatedBy].fit(t.mapping.Writer))
	}
	if t.has(UpdatedAt) && !strings.Contains(t.columns[UpdatedAt].extra, "on update") {
		s.add(", ", t.column(UpdatedAt), " = ", t.now(UpdatedAt))
	}
}

// perRow writes a CASE that gives each listed row its own value; equal values for all need none.
func (t *Table) perRow(s *statement, n int, id func(i int) string, value func(i int)) {
	if n == 1 {
		value(0)
		return
	}
	s.add("CASE ", t.column(ID))
	for i := range n {
		s.add(" WHEN ")
		t.id(s, id(i))
		s.add(" THEN ")
		value(i)
	}
	s.add(" END")
}
