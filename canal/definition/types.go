package definition

import "strings"

// typeNames are the words for types and what information_schema.COLUMNS calls them in DATA_TYPE.
var typeNames = map[string]string{
	"tinyint": "tinyint", "int1": "tinyint", "bool": "tinyint", "boolean": "tinyint", "smallint": "smallint", "int2": "smallint",
	"mediumint": "mediumint", "int3": "mediumint", "middleint": "mediumint", "int": "int", "integer": "int", "int4": "int",
	"bigint": "bigint", "int8": "bigint", "serial": "bigint",
	"decimal": "decimal", "dec": "decimal", "numeric": "decimal", "fixed": "decimal",
	"float": "float", "float4": "float", "double": "double", "float8": "double", "real": "double", "bit": "bit",
	"char": "char", "character": "char", "nchar": "char", "varchar": "varchar", "varcharacter": "varchar", "nvarchar": "varchar",
	"binary": "binary", "varbinary": "varbinary", "tinytext": "tinytext", "text": "text", "mediumtext": "mediumtext", "longtext": "longtext",
	"tinyblob": "tinyblob", "blob": "blob", "mediumblob": "mediumblob", "longblob": "longblob", "long": "mediumtext",
	"enum": "enum", "set": "set", "json": "json", "vector": "vector",
	"date": "date", "time": "time", "datetime": "datetime", "timestamp": "timestamp", "year": "year",
	"geometry": "geometry", "point": "point", "linestring": "linestring", "polygon": "polygon", "multipoint": "multipoint",
	"multilinestring": "multilinestring", "multipolygon": "multipolygon", "geometrycollection": "geometrycollection", "geomcollection": "geometrycollection",
	"uuid": "uuid", "inet4": "inet4", "inet6": "inet6",
}

// binaries are the types that a text type becomes in the character set binary.
var binaries = map[string]string{
	"char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob", "longtext": "longblob",
}

// hasCharset reports whether columns of a type have a character set.
func hasCharset(typ string) bool { return binaries[typ] != "" || typ == "enum" || typ == "set" }

// charsets are those of MySQL 5.7 to 9 and MariaDB up to 11.8.
var charsets = map[string]bool{
	"big5": true, "dec8": true, "cp850": true, "hp8": true, "koi8r": true, "latin1": true, "latin2": true, "swe7": true, "ascii": true, "ujis": true, "sjis": true,
	"hebrew": true, "tis620": true, "euckr": true, "koi8u": true, "gb2312": true, "greek": true, "cp1250": true, "gbk": true, "latin5": true, "armscii8": true,
	"utf8": true, "utf8mb3": true, "utf8mb4": true, "ucs2": true, "cp866": true, "keybcs2": true, "macce": true, "macroman": true, "cp852": true, "latin7": true,
	"cp1251": true, "utf16": true, "utf16le": true, "cp1256": true, "cp1257": true, "utf32": true, "binary": true, "geostd8": true, "cp932": true,
	"eucjpms": true, "gb18030": true,
}

// CharsetOf returns the character set of a collation, whose name begins with it; "" for MariaDB's short names such as
// uca1400_ai_ci, which hold in any.
func CharsetOf(collation string) string {
	name, _, _ := strings.Cut(strings.ToLower(collation), "_")
	if !charsets[name] {
		return ""
	}
	return canonical(name)
}

// canonical gives utf8 the name that newer servers have for it.
func canonical(charset string) string {
	charset = strings.ToLower(charset)
	if charset == "utf8" {
		return "utf8mb3"
	}
	return charset
}

// unknownCharset means the default of a database, which the log does not show.
const unknownCharset = ""
