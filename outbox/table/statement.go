package table

import (
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Age is how long ago the time of a column was, in microseconds; negative when it is to come.
func (t *Table) Age(role Column) string {
	return "TIMESTAMPDIFF(MICROSECOND, " + t.Column(role) + ", " + t.Now(role) + ")"
}

// Ahead is how far ahead of the database's clock the time of a column is, in microseconds, negative when it has passed. Where summer time has ended within
// two hours the row counts as one of before.
func (t *Table) Ahead(role Column) string {
	over := func(now string) string { return "TIMESTAMPDIFF(MICROSECOND, " + now + ", " + t.Column(role) + ")" }
	return "LEAST(" + over(t.Now(role)) + ", " + over(t.UnchangedNow(role, 2*time.Hour)) + ")"
}

// Limit ends a query of at most n rows.
func (s *Statement) Limit(n int) { s.Add(" LIMIT ", strconv.Itoa(n)) }

// Inside is a query over the rows of a query.
func (s *Statement) Inside(columns string) *Statement {
	out := &Statement{Args: s.Args}
	out.Add("SELECT ", columns, " FROM (", s.text.String(), ") AS sample")
	return out
}

// Shown is how a SELECT must show a column to be equal to what the binlog shows.
func (t *Table) Shown(role Column) string {
	if t.columns[role].DataType == "timestamp" {
		return "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL UNIX_TIMESTAMP(" + t.Column(role) + ") SECOND"
	}
	return t.Column(role)
}

// MaxRows is how many rows one statement names: the fastest size measured, and small enough for MariaDB to keep an IN
// list an IN list.
const MaxRows = 500

// CreatedAhead is how far ahead of the database's clock a row may be made that is taken for one of now: what the clocks of an application and of the
// database differ by when both are kept, and more than a statement may run. A statement's NOW is the time when it was sent. Its rows are read later, once
// no metadata lock is in its way, and those that were made meanwhile lie ahead of that NOW.
const CreatedAhead = time.Minute

// Statement is SQL text with its arguments, in order. Names, integers and hexadecimal digits are in the text, everything else is an
// argument.
type Statement struct {
	text strings.Builder
	Args []any
}

// String is the text.
func (s *Statement) String() string { return s.text.String() }

// Grow makes room for n bytes of text.
func (s *Statement) Grow(n int) { s.text.Grow(n) }

// Add writes text.
func (s *Statement) Add(parts ...string) {
	for _, part := range parts {
		s.text.WriteString(part)
	}
}

// List writes "a, b, c", n times each.
func (s *Statement) List(n int, each func(i int)) {
	for i := range n {
		if i > 0 {
			s.Add(", ")
		}
		each(i)
	}
}

// Arg is an argument in the connection's character set.
func (s *Statement) Arg(value string) {
	s.Add("?")
	s.Args = append(s.Args, value)
}

// Bytes is compared byte by byte with a binary expression. It is in the text, in digits: an argument would cost two allocations.
func (s *Statement) Bytes(parts ...string) {
	const digits = "0123456789abcdef"
	s.Add("x'")
	for _, part := range parts {
		for i := range len(part) {
			s.text.WriteByte(digits[part[i]>>4])
			s.text.WriteByte(digits[part[i]&15])
		}
	}
	s.Add("'")
}

// Micros is a number of microseconds.
func (s *Statement) Micros(d time.Duration) {
	s.Add("?")
	s.Args = append(s.Args, d.Microseconds())
}

// Exact is a column as the bytes of its text in UTF-8, so that case, accents and trailing spaces count whatever its collation; NULL is "".
func (t *Table) Exact(role Column) string {
	column := t.Column(role)
	switch c := t.columns[role]; {
	case c.IsBytes():
		column = "LOWER(HEX(" + column + "))"
	case c.set() != nil:
		column = "CONVERT(" + column + " USING utf8mb4)"
	}
	return "COALESCE(CAST(" + column + " AS BINARY), '')"
}

// MessageID is the message id of a row as bytes: the same text that Message makes.
func (t *Table) MessageID() string {
	switch {
	case t.Has(MessageID):
		return t.Exact(MessageID)
	case t.appendID:
		return "CONCAT(" + t.Exact(BizType) + ", ':', " + t.Exact(Key) + ", ':', " + t.Exact(ID) + ")"
	}
	return "CONCAT(" + t.Exact(BizType) + ", ':', " + t.Exact(Key) + ")"
}

// Now is the database's clock in the zone of a column.
func (t *Table) Now(role Column) string {
	if t.columns[role].DataType == "timestamp" {
		return "NOW(3)"
	}
	return t.Clock()
}

// Clock is the database's clock in the zone of the DATETIME columns.
func (t *Table) Clock() string {
	if t.mapping.TimeZone == "" {
		return "NOW(3)"
	}
	return "CONVERT_TZ(UTC_TIMESTAMP(3), '+00:00', '" + strings.ReplaceAll(t.mapping.TimeZone, "'", "''") + "')"
}

// UnchangedNow is what Now would be if the zone's clock had not been set forward or back within the last d, as it is at both ends of summer time.
func (t *Table) UnchangedNow(role Column, d time.Duration) string {
	micros := strconv.FormatInt(d.Microseconds(), 10)
	return "CONVERT_TZ(UTC_TIMESTAMP(3) - INTERVAL " + micros + " MICROSECOND, '+00:00', " + t.ZoneOf(role) + ") + INTERVAL " + micros + " MICROSECOND"
}

// ZoneOf is the zone of a column.
func (t *Table) ZoneOf(role Column) string {
	if t.mapping.TimeZone == "" || t.columns[role].DataType == "timestamp" {
		return "@@session.time_zone"
	}
	return "'" + strings.ReplaceAll(t.mapping.TimeZone, "'", "''") + "'"
}

// RetryCount is the count of a row; NULL is 0, as in a Message, and so is a count that the table does not keep.
func (t *Table) RetryCount() string {
	if !t.Has(RetryCount) {
		return "0"
	}
	return "COALESCE(" + t.Column(RetryCount) + ", 0)"
}

// Code is a status code as a literal that the index on the status column can use.
func (t *Table) Code(s *Statement, status outbox.Status) { t.Literal(s, t.mapping.Codes[status]) }

// Literal is a text of the status column.
func (t *Table) Literal(s *Statement, code string) {
	if t.columns[StatusCode].Kind() == KindInteger {
		s.Add(code)
		return
	}
	s.Arg(code)
}

// IDIn writes "id IN (...)", the access path of every statement that touches rows.
func (t *Table) IDIn(s *Statement, n int, id func(i int) string) {
	s.Add(t.Column(ID), " IN (")
	s.List(n, func(i int) { t.ID(s, id(i)) })
	s.Add(")")
}

// FromKeys writes the table and the condition that rows have one of n primary keys.
func (t *Table) FromKeys(s *Statement, n int, id func(i int) string) {
	s.Add(" FROM ", t.quoted, " FORCE INDEX (PRIMARY) WHERE ")
	t.IDIn(s, n, id)
}
