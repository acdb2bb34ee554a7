package outbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Flavor is the kind of server: it decides the GTID format and a few statements.
type Flavor string

const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// Position is a transaction boundary of one server's log: all earlier transactions are before it. File and offset are always set;
// where the server has GTIDs, a resume uses the GTID set.
type Position struct {
	File   string `json:"file"`
	Offset uint64 `json:"pos"`
	GTIDs  string `json:"gtid,omitempty"` // executed set in the server's text form; "" when the server has none
}

// IsZero reports whether no position is set.
func (p Position) IsZero() bool { return p.File == "" && p.GTIDs == "" }

// String is file:offset, for people.
func (p Position) String() string {
	if p.File == "" {
		return p.GTIDs
	}
	return p.File + ":" + strconv.FormatUint(p.Offset, 10)
}

// Compare orders two positions of the same server by file number and offset: -1, 0 or 1. The number is the part after the last
// dot, so binlog.1000000 is after binlog.999999.
func (p Position) Compare(q Position) int {
	a, b := fileNumber(p.File), fileNumber(q.File)
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case p.Offset < q.Offset:
		return -1
	case p.Offset > q.Offset:
		return 1
	}
	return 0
}

func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64) // no number: before everything
	return n
}

// LogEnd is the end of the log at the time of a query.
type LogEnd struct {
	Position
	Generation uint64 // of the relay's position, read before the query
}

// ErrMoved reports that the position was moved after the end of the log was read. The log may be that of another server, so the
// two cannot be compared.
var ErrMoved = errors.New("the position was moved: the end of the log that was read before is no longer valid")

// ParseFile checks a log file name given by a person.
func ParseFile(name string) error {
	if i := strings.LastIndexByte(name, '.'); i <= 0 || fileNumber(name) == 0 || strings.ContainsAny(name, "/\\ ") {
		return fmt.Errorf("%q is not a binlog file name: expected something like binlog.000042", name)
	}
	return nil
}
