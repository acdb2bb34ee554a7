package table

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// ColumnType is a column's type as information_schema describes it.
type ColumnType struct {
	Name       string
	DataType   string // lower case, without length: "bigint", "varchar", "datetime"
	Unsigned   bool
	Characters int64  // longest value in characters; 0 when the type has none
	Octets     int64  // longest value in bytes; 0 when the type has none
	Fraction   int    // digits behind the second
	Charset    string // "" for types without one
	Collation  string
	Nullable   bool

	fullType string // with everything the server prints
	extra    string
	fallback Value // what the server puts in when the INSERT does not say; Absent when that is not a constant
}

type kind uint8

const (
	other    kind = iota
	integer       // TINYINT to BIGINT
	short         // CHAR, VARCHAR
	long          // TINYTEXT to LONGTEXT
	binary        // VARBINARY, TINYBLOB to LONGBLOB
	fixed         // BINARY
	document      // JSON of MySQL; MariaDB's is a LONGTEXT
	moment        // DATETIME, TIMESTAMP
)

// kindOf is the closed list of types that both the log and a SELECT show in the same text (A48). BINARY, whose trailing zero
// bytes the log leaves out, is one for keys only, which are padded. ENUM, SET and BIT are numbers in the log and words in a
// SELECT; ZEROFILL is padded in a SELECT only.
func (c ColumnType) kindOf() kind {
	if strings.Contains(c.fullType, "zerofill") {
		return other
	}
	switch c.DataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return integer
	case "char", "varchar":
		return short
	case "tinytext", "text", "mediumtext", "longtext":
		return long
	case "binary":
		return fixed
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return binary
	case "json":
		return document
	case "datetime", "timestamp":
		return moment
	}
	return other
}

// allowed are the kinds that may play a role, the advised one first.
var allowed = [columnCount][]kind{
	ID:              {integer, short, fixed, binary},
	MessageID:       {short, integer, fixed, binary},
	BizType:         {short, integer},
	Key:             {short, integer, fixed, binary},
	Topic:           {short},
	Tag:             {short},
	ShardingKey:     {short, integer},
	Body:            {long, binary, short, document},
	Headers:         {long, document, short, binary},
	Partition:       {integer},
	StatusCode:      {integer, short},
	RetryCount:      {integer},
	MaxRetry:        {integer},
	NextRetryTime:   {moment},
	LastExecTime:    {moment},
	FailReason:      {short, long},
	CreatedAt:       {moment},
	BrokerMessageID: {short, long},
	SentAt:          {moment},
	LockVersion:     {integer},
	UpdatedBy:       {short, long},
	UpdatedAt:       {moment},
}

var kindNames = map[kind]string{
	integer: "an integer type", short: "CHAR or VARCHAR", long: "a TEXT type", binary: "VARBINARY or a BLOB type",
	document: "JSON", fixed: "BINARY", moment: "DATETIME or TIMESTAMP",
}

func allowedNames(role Column) string {
	var names []string
	for _, k := range allowed[role] {
		names = append(names, kindNames[k])
	}
	return strings.Join(names, ", ")
}

// carriesUTF8 reports whether the stored bytes are what a UTF-8 client reads: the log does not transcode (A49).
func (c ColumnType) carriesUTF8() bool {
	switch c.Charset {
	case "", "utf8mb4", "utf8mb3", "utf8", "ascii", "binary":
		return true
	}
	return false
}

// ignoresCase reports whether comparing in SQL does.
func (c ColumnType) ignoresCase() bool { return strings.HasSuffix(c.Collation, "_ci") }

// fit makes a text that the column takes whole: valid in its character set, and cut to its length at a character.
func (c ColumnType) fit(text string) string {
	highest := utf8.MaxRune
	switch c.Charset {
	case "utf8", "utf8mb3":
		highest = 0xFFFF
	case "ascii":
		highest = 0x7F
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r > highest {
			return '?'
		}
		return r
	}, text)
	var characters int64
	for i, r := range text {
		if c.Characters > 0 && characters == c.Characters || c.Octets > 0 && int64(i+utf8.RuneLen(r)) > c.Octets {
			return text[:i]
		}
		characters++
	}
	return text
}

// constantDefault reads COLUMN_DEFAULT, which the flavors print differently: MySQL prints a constant bare and marks
// expressions in EXTRA; MariaDB (10.2.7 and later) prints an SQL expression, with 'NULL' for NULL.
func constantDefault(mariaDB bool, text string, isNull bool, extra string) Value {
	if isNull {
		return Value{Null: true}
	}
	if !mariaDB {
		if strings.Contains(extra, "default_generated") || strings.HasPrefix(strings.ToLower(text), "current_timestamp") {
			return Value{Absent: true}
		}
		return Value{Data: []byte(text)}
	}
	if strings.EqualFold(text, "NULL") {
		return Value{Null: true}
	}
	if n := len(text); n >= 2 && text[0] == '\'' && text[n-1] == '\'' {
		return Value{Data: []byte(strings.ReplaceAll(text[1:n-1], "''", "'"))}
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return Value{Data: []byte(text)}
	}
	return Value{Absent: true}
}

// quote makes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
