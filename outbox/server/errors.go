package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// Class says what an error of the server means for the statement and for the service.
type Class uint8

const (
	Other     Class = iota // not listed: a fault of ours or of the server
	Transient              // the statement had bad luck with locks or was interrupted: run it again
	Busy                   // the server takes no more for now: back off
	Lost                   // the connection ended or the wait for an answer did: the outcome of the statement is unknown
	Data                   // the statement cannot be done for the data of one of its rows
	ReadOnly               // the server takes no writes: resolve the address again
	Service                // nothing can work until an operator acts: access, missing table or column, full disk
	Gap                    // the log we ask for is not there
	Fenced                 // another reader took our server_id
)

// String returns the name used in logs.
func (c Class) String() string {
	return [...]string{"other", "transient", "busy", "lost", "data", "read_only", "service", "gap", "fenced"}[c]
}

// Classify looks through wrapped errors. nil is Other.
func Classify(err error) Class {
	var (
		answer   *mysql.MySQLError
		refused  *RefusedError
		readOnly *ReadOnlyError
		noBinlog *NoBinlogError
		network  net.Error
	)
	switch {
	case errors.As(err, &answer):
		return ClassifyCode(answer.Number, string(answer.SQLState[:]))
	case errors.As(err, &readOnly):
		return ReadOnly
	case errors.As(err, &refused), errors.As(err, &noBinlog):
		return Service
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network):
		return Lost
	}
	return Other
}

// LockWait reports whether a statement timed out on a lock: of a row, or of a table that is being changed.
func LockWait(err error) bool { return Code(err) == 1205 }

// OfOneTable reports whether the code of an answer may be about a single table: the server takes statements and writes. 0 is an error without an answer.
func OfOneTable(code uint16) bool {
	if code == 0 {
		return false
	}
	switch ClassifyCode(code, "") {
	case Busy, Lost, ReadOnly:
		return false
	}
	return true
}

// Code is the number of the server's answer in an error; 0 when there is none.
func Code(err error) uint16 {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

// Refused reports whether the server did not accept the account's password or certificate.
func Refused(err error) bool { return refused(Code(err)) }

func refused(code uint16) bool {
	switch code {
	case 1045, 1698, 1862: // ACCESS_DENIED_ERROR, ACCESS_DENIED_NO_PASSWORD_ERROR, MUST_CHANGE_PASSWORD_LOGIN
		return true
	}
	return false
}

// NoTLS reports whether a connection requested TLS and the server does not offer it.
func NoTLS(err error) bool { return errors.Is(err, mysql.ErrNoTLS) }

// OldTLS reports whether the server has only versions of TLS before 1.2: it answers so, or chooses an older version than was offered, as
// MySQL 5.7.22 does. crypto/tls has texts alone for both.
func OldTLS(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "tls: protocol version not supported") ||
		strings.Contains(err.Error(), "tls: server selected unsupported protocol version"))
}

// ClassifyCode is Classify for an answer of the server that came through another client library. state may be "".
func ClassifyCode(code uint16, state string) Class {
	if class, ok := codes[code]; ok {
		return class
	}
	if len(state) == 5 {
		switch state[:2] {
		case "20", "21", "22", "23", "44", "45": // CASE without ELSE, cardinality, data, constraint, CHECK OPTION, SIGNAL of a trigger
			return Data
		case "28": // invalid authorisation
			return Service
		case "08": // connection exception
			return Lost
		}
	}
	return Other
}

// codes are from the servers' error lists (MySQL 9 and MariaDB 11 references); names as there, without ER_.
var codes = map[uint16]Class{
	1205: Transient, // LOCK_WAIT_TIMEOUT
	1213: Transient, // LOCK_DEADLOCK
	1317: Transient, // QUERY_INTERRUPTED (KILL QUERY)
	1020: Transient, // CHECKREAD, MariaDB under snapshot isolation
	1969: Transient, // STATEMENT_TIMEOUT, MariaDB
	3024: Transient, // QUERY_TIMEOUT
	3101: Transient, // TRANSACTION_ROLLBACK_DURING_COMMIT, group replication

	1037: Busy, // OUTOFMEMORY
	1040: Busy, // CON_COUNT_ERROR
	1041: Busy, // OUT_OF_RESOURCES
	1135: Busy, // CANT_CREATE_THREAD
	1203: Busy, // TOO_MANY_USER_CONNECTIONS
	1226: Busy, // USER_LIMIT_REACHED
	3032: Busy, // SERVER_OFFLINE_MODE: in maintenance, or without the majority of its group

	1053: Lost, // SERVER_SHUTDOWN
	1152: Lost, // ABORTING_CONNECTION
	1158: Lost, // NET_READ_ERROR
	1159: Lost, // NET_READ_INTERRUPTED
	1160: Lost, // NET_ERROR_ON_WRITE
	1161: Lost, // NET_WRITE_INTERRUPTED
	1927: Lost, // CONNECTION_KILLED, MariaDB
	2006: Lost, // CR_SERVER_GONE_ERROR
	2013: Lost, // CR_SERVER_LOST
	4031: Lost, // CLIENT_INTERACTION_TIMEOUT

	1048: Data, // BAD_NULL_ERROR
	1062: Data, // DUP_ENTRY
	1264: Data, // WARN_DATA_OUT_OF_RANGE
	1265: Data, // WARN_DATA_TRUNCATED
	1292: Data, // TRUNCATED_WRONG_VALUE
	1118: Data, // TOO_BIG_ROWSIZE
	1172: Data, // TOO_MANY_ROWS, of SELECT INTO in a trigger
	1197: Data, // TRANS_CACHE_FULL: fewer rows may fit
	1242: Data, // SUBQUERY_NO_1_ROW, in a trigger
	1300: Data, // INVALID_CHARACTER_STRING
	1339: Data, // SP_CASE_NOT_FOUND, in a trigger
	1364: Data, // NO_DEFAULT_FOR_FIELD, of an INSERT in a trigger
	1366: Data, // TRUNCATED_WRONG_VALUE_FOR_FIELD
	1369: Data, // VIEW_CHECK_FAILED
	1406: Data, // DATA_TOO_LONG
	1411: Data, // WRONG_VALUE_FOR_TYPE
	1451: Data, // ROW_IS_REFERENCED_2
	1452: Data, // NO_REFERENCED_ROW_2
	1525: Data, // WRONG_VALUE
	1526: Data, // NO_PARTITION_FOR_GIVEN_VALUE
	1644: Data, // SIGNAL_EXCEPTION
	1690: Data, // DATA_OUT_OF_RANGE
	1713: Data, // UNDO_RECORD_TOO_BIG
	1748: Data, // ROW_DOES_NOT_MATCH_GIVEN_PARTITION_SET
	1977: Data, // CANNOT_CONVERT_CHARACTER, MariaDB
	3819: Data, // CHECK_CONSTRAINT_VIOLATED
	3854: Data, // CANNOT_CONVERT_STRING, MySQL
	3988: Data, // IMPOSSIBLE_STRING_CONVERSION, MySQL
	4025: Data, // CONSTRAINT_FAILED, MariaDB

	1290: ReadOnly, // OPTION_PREVENTS_STATEMENT
	1792: ReadOnly, // CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	1836: ReadOnly, // READ_ONLY_MODE

	1021: Service, // DISK_FULL
	1044: Service, // DBACCESS_DENIED_ERROR
	1045: Service, // ACCESS_DENIED_ERROR
	1049: Service, // BAD_DB_ERROR
	1054: Service, // BAD_FIELD_ERROR
	1114: Service, // RECORD_FILE_FULL
	1129: Service, // HOST_IS_BLOCKED
	1130: Service, // HOST_NOT_PRIVILEGED
	1142: Service, // TABLEACCESS_DENIED_ERROR
	1143: Service, // COLUMNACCESS_DENIED_ERROR
	1146: Service, // NO_SUCH_TABLE
	1227: Service, // SPECIFIC_ACCESS_DENIED_ERROR
	1698: Service, // ACCESS_DENIED_NO_PASSWORD_ERROR
	1820: Service, // MUST_CHANGE_PASSWORD
	1862: Service, // MUST_CHANGE_PASSWORD_LOGIN
	3118: Service, // ACCOUNT_HAS_BEEN_LOCKED
	4151: Service, // ACCOUNT_HAS_BEEN_LOCKED, MariaDB

	1236: Gap, // MASTER_FATAL_ERROR_READING_BINLOG
	1373: Gap, // UNKNOWN_TARGET_BINLOG

	4052: Fenced, // SLAVE_SAME_ID, MariaDB
}
