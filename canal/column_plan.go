package canal

import (
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/charset"
)

// columnPlan describes how to read the row images of one table map: the column of each ordinal, and how its bytes become text.
type columnPlan struct {
	id      uint64          // the table id of the map
	fault   string          // why no row can be mapped; "" when they can
	columns []column        // empty when the lengths of the values are unknown
	shared  []sharedColumn  // values that share a column with an earlier value
	from    outbox.Position // a plan from a schema version is valid from here; zero: always
}

// sharedColumn is a value whose role reads the same column as an earlier one: it is copied from that one.
type sharedColumn struct{ from, to int }

// column is one ordinal of the table.
type column struct {
	typ      byte // the real type: ENUM and SET instead of CHAR
	meta     uint16
	width    int // bytes of a fixed-size value; 0 when the size is in the value
	slot     int // the first of the values that it fills; -1: the column is skipped
	unsigned bool
	binary   bool         // no text: a fixed length is padded with zero bytes
	set      *charset.Set // nil: the bytes are UTF-8, or none of a character set
	unsure   bool         // its character set is not known: only ASCII is the same in each that can be read
}

// columnInfo is what a plan needs and the fixed part of a table map does not have.
type columnInfo struct {
	name     string
	unsigned bool
	charset  string // as charsetOf names it; "" where the log does not say: the bytes are used as they are
	unsure   bool   // it is a text, and its character set is not known
	refused  string // why this column cannot be read from the log though its type looks readable
}

// newColumnPlan combines a table map with the known facts about its columns. want lists the column names of the values, in order;
// a name may occur more than once. A plan with a fault defers every row.
func newColumnPlan(tm *replication.TableMapEvent, infos []columnInfo, want []string) *columnPlan {
	p := &columnPlan{id: tm.TableID}
	if len(infos) != int(tm.ColumnCount) {
		p.fault = fmt.Sprintf("%d columns in the log, %d known", tm.ColumnCount, len(infos))
		return p
	}
	p.columns = make([]column, len(infos))
	found := 0
	for i, info := range infos {
		c := column{typ: realType(tm, i), meta: tm.ColumnMeta[i], unsigned: info.unsigned, binary: info.charset == "binary", unsure: info.unsure, slot: -1}
		var known bool
		if c.width, known = width(c.typ, c.meta); !known {
			return &columnPlan{id: tm.TableID, fault: fmt.Sprintf("column %s has type %d, whose length is not known", info.name, c.typ)}
		}
		found += p.take(&c, info.name, want)
		why := c.unreadable(info)
		if c.slot >= 0 && why != "" {
			p.fault = fmt.Sprintf("column %s %s", info.name, why)
		} else if c.slot >= 0 {
			c.set, _ = charset.Named(info.charset)
		}
		p.columns[i] = c
	}
	if found < len(want) {
		p.fault = fmt.Sprintf("%d of the mapped columns are not in the table", len(want)-found)
	}
	return p
}

// take assigns a column to every value that needs it and returns their number.
func (p *columnPlan) take(c *column, name string, want []string) (n int) {
	for value, wanted := range want {
		if !strings.EqualFold(wanted, name) {
			continue
		}
		if n++; c.slot < 0 {
			c.slot = value
		} else {
			p.shared = append(p.shared, sharedColumn{from: c.slot, to: value})
		}
	}
	return n
}

// realType undoes the packing of ENUM and SET into CHAR.
func realType(tm *replication.TableMapEvent, i int) byte {
	typ := tm.ColumnType[i]
	if typ == mysql.MYSQL_TYPE_STRING {
		if packed := byte(tm.ColumnMeta[i] >> 8); packed == mysql.MYSQL_TYPE_ENUM || packed == mysql.MYSQL_TYPE_SET {
			return packed
		}
	}
	return typ
}

// infosFromMetadata reads names, signs and character sets; nil when the server did not write names.
func infosFromMetadata(tm *replication.TableMapEvent, m *metadata) []columnInfo {
	if len(m.names) != int(tm.ColumnCount) {
		return nil
	}
	infos := make([]columnInfo, tm.ColumnCount)
	numeric, text := 0, 0
	for i := range infos {
		info := &infos[i]
		info.name = string(m.names[i])
		switch {
		case tm.IsNumericColumn(i):
			info.unsigned = numeric/8 < len(m.signedness) && m.signedness[numeric/8]&(0x80>>(numeric%8)) != 0
			numeric++
		case tm.IsCharacterColumn(i):
			info.charset = m.charset(text)
			text++
		}
	}
	return infos
}

// charset returns the character set of the n-th text column.
func (m *metadata) charset(n int) string {
	if n < len(m.perColumn) {
		return charsetOf(m.perColumn[n])
	}
	if len(m.collations) == 0 {
		return ""
	}
	for i := 1; i+1 < len(m.collations); i += 2 {
		if m.collations[i] == uint64(n) {
			return charsetOf(m.collations[i+1])
		}
	}
	return charsetOf(m.collations[0])
}

// width returns the size of a fixed-size type, or 0 and ok for a type that stores its length.
func width(typ byte, meta uint16) (n int, ok bool) {
	fraction := (int(meta) + 1) / 2
	switch typ {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_YEAR:
		return 1, true
	case mysql.MYSQL_TYPE_SHORT:
		return 2, true
	case mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE:
		return 3, true
	case mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_FLOAT:
		return 4, true
	case mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_DOUBLE:
		return 8, true
	case mysql.MYSQL_TYPE_TIME2:
		return 3 + fraction, true
	case mysql.MYSQL_TYPE_TIMESTAMP2:
		return 4 + fraction, true
	case mysql.MYSQL_TYPE_DATETIME2:
		return 5 + fraction, true
	case mysql.MYSQL_TYPE_NEWDECIMAL:
		return decimalWidth(int(meta>>8), int(meta&0xff)), true
	case mysql.MYSQL_TYPE_BIT:
		return (int(meta>>8)*8 + int(meta&0xff) + 7) / 8, true
	case mysql.MYSQL_TYPE_ENUM, mysql.MYSQL_TYPE_SET:
		return int(meta & 0xff), true
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_STRING:
		return 0, true
	case mysql.MYSQL_TYPE_BLOB, mysql.MYSQL_TYPE_JSON, mysql.MYSQL_TYPE_GEOMETRY, mysql.MYSQL_TYPE_VECTOR:
		return 0, meta >= 1 && meta <= 4 // bytes of the length prefix
	}
	// The temporal types of MySQL 5.5 (MariaDB with mysql56_temporal_format=OFF) and MariaDB's COMPRESSED columns (A43).
	return 0, false
}

// unreadable reports why a needed column of this type cannot become the text that the server prints. The list of readable types
// is closed (A48).
func (c *column) unreadable(info columnInfo) string {
	if info.refused != "" {
		return info.refused
	}
	switch c.typ {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG,
		mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_TIMESTAMP2, mysql.MYSQL_TYPE_DATETIME2, mysql.MYSQL_TYPE_JSON:
		return ""
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_BLOB:
		if _, known := charset.Named(info.charset); !known {
			return "has a character set (" + info.charset + ") that is not read from the log"
		}
		return ""
	}
	return fmt.Sprintf("has type %d, which is not read from the log", c.typ)
}
