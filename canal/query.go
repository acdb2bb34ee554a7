package canal

import (
	"bytes"
)

// queryKind returns the meaning of a Query event. The server writes the statements of the transaction protocol itself, in
// capitals; everything else is the text of a client's statement.
func queryKind(query []byte) (k kind, xid string) {
	switch string(query) {
	case "BEGIN":
		return kindBegin, ""
	case "COMMIT":
		return kindCommit, ""
	case "ROLLBACK":
		return kindRollback, ""
	}
	if after, ok := bytes.CutPrefix(query, []byte("XA ")); ok {
		return xaKind(after)
	}
	// ROLLBACK TO is written only when the group has rows that were rolled back: it is handled like any other statement (A32).
	if bytes.HasPrefix(query, []byte("SAVEPOINT ")) {
		return kindNothing, ""
	}
	return kindStatement, ""
}

func xaKind(query []byte) (k kind, xid string) {
	verb, id, _ := bytes.Cut(query, []byte(" "))
	switch string(verb) {
	case "START", "END": // MariaDB writes no START: the branch's id is in its GTID event, which the library does not decode
		return kindBegin, string(id)
	case "COMMIT":
		return kindXACommit, string(id)
	case "ROLLBACK":
		return kindXARollback, string(id)
	}
	return kindStatement, ""
}

// names reports whether a statement's text contains the table's name as a whole identifier, in any letter case, schema and
// position. A false match is harmless, a missed one is not.
func names(query []byte, table string) bool {
	first := table[0] | 0x20
	for i := 0; i+len(table) <= len(query); i++ {
		if query[i]|0x20 != first || !bytes.EqualFold(query[i:i+len(table)], []byte(table)) {
			continue
		}
		end := i + len(table)
		if (i == 0 || !identifier(query[i-1])) && (end == len(query) || !identifier(query[end])) {
			return true
		}
	}
	return false
}

// identifier reports whether a byte can be part of an unquoted name.
func identifier(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// changesRowsOnly reports whether a statement leaves every table's columns as they are. A statement that is not recognised may be
// DDL.
func changesRowsOnly(query []byte) bool {
	switch verb(query) {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD":
		return true
	}
	return false
}

// verb is the first word of a statement, in capitals.
func verb(query []byte) string {
	if i := bytes.IndexAny(query, " \t\r\n(/;"); i >= 0 {
		query = query[:i]
	}
	return string(bytes.ToUpper(query))
}

// mayInsert reports whether a statement may have inserted rows that are not in the log. One that is not recognised may.
func mayInsert(query []byte) bool {
	for {
		query = bytes.TrimLeft(query, " \t\r\n")
		if !bytes.HasPrefix(query, []byte("/*")) || bytes.HasPrefix(query, []byte("/*!")) || bytes.HasPrefix(query, []byte("/*M!")) {
			break
		}
		_, rest, ended := bytes.Cut(query[2:], []byte("*/"))
		if !ended {
			return true
		}
		query = rest
	}
	switch verb(query) {
	case "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "SET", "ROLLBACK":
		return false
	}
	return true
}
