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

// Kind is what of a column's type matters to the relay.
type Kind uint8

const (
	kindOther    Kind = iota
	KindInteger       // TINYINT to BIGINT
	kindShort         // CHAR, VARCHAR
	kindLong          // TINYTEXT to LONGTEXT
	kindBinary        // VARBINARY, TINYBLOB to LONGBLOB
	kindFixed         // BINARY
	kindDocument      // JSON of MySQL; MariaDB's is a LONGTEXT
	KindTime          // DATETIME, TIMESTAMP
)

// Kind is the closed list of types that both the log and a SELECT show in the same text (A48). BINARY, whose trailing zero
// bytes the log leaves out, is one for keys only, which are padded. ENUM, SET and BIT are numbers in the log and words in a
// SELECT; ZEROFILL is padded in a SELECT only.
func (c ColumnType) Kind() Kind {
	if strings.Contains(c.fullType, "zerofill") {
		return kindOther
	}
	switch c.DataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return KindInteger
	case "char", "varchar":
		return kindShort
	case "tinytext", "text", "mediumtext", "longtext":
		return kindLong
	case "binary":
		return kindFixed
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return kindBinary
	case "json":
		return kindDocument
	case "datetime", "timestamp":
		return KindTime
	}
	return kindOther
}

// allowed are the kinds that may play a role, the advised one first.
var allowed = [columnCount][]Kind{
	ID:              {KindInteger, kindShort, kindFixed, kindBinary},
	MessageID:       {kindShort, KindInteger, kindFixed, kindBinary},
	BizType:         {kindShort, KindInteger},
	Key:             {kindShort, KindInteger, kindFixed, kindBinary},
	Topic:           {kindShort},
	Tag:             {kindShort},
	ShardingKey:     {kindShort, KindInteger},
	Body:            {kindLong, kindBinary, kindShort, kindDocument},
	Headers:         {kindLong, kindDocument, kindShort, kindBinary},
	Partition:       {KindInteger},
	StatusCode:      {KindInteger, kindShort},
	RetryCount:      {KindInteger},
	MaxRetry:        {KindInteger},
	NextRetryTime:   {KindTime},
	LastExecTime:    {KindTime},
	FailReason:      {kindShort, kindLong},
	CreatedAt:       {KindTime},
	BrokerMessageID: {kindShort, kindLong},
	SentAt:          {KindTime},
	LockVersion:     {KindInteger},
	UpdatedBy:       {kindShort, kindLong},
	UpdatedAt:       {KindTime},
}

var kindNames = map[Kind]string{
	KindInteger: "an integer type", kindShort: "CHAR or VARCHAR", kindLong: "a TEXT type", kindBinary: "VARBINARY or a BLOB type",
	kindDocument: "JSON", kindFixed: "BINARY", KindTime: "DATETIME or TIMESTAMP",
}

func allowedNames(role Column) string {
	var names []string
	for _, k := range allowed[role] {
		names = append(names, kindNames[k])
	}
	return strings.Join(names, ", ")
}

// OnUpdate reports whether the server sets the column at each change of a row that does not set it.
func (c ColumnType) OnUpdate() bool { return strings.Contains(c.extra, "on update") }

// ignoresCase reports whether comparing in SQL does.
func (c ColumnType) ignoresCase() bool { return strings.HasSuffix(c.Collation, "_ci") }

// Fit makes a text that the column takes whole: with question marks for what its character set does not have, and cut to its length at a character.
func (c ColumnType) Fit(text string) string {
	size := c.sizes()
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || size(r) == 0 {
			return '?'
		}
		return r
	}, text)
	var characters, octets int64
	for i, r := range text {
		octets += int64(size(r))
		if c.Characters > 0 && characters == c.Characters || c.Octets > 0 && octets > c.Octets {
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

// Quote makes an identifier.
func Quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
