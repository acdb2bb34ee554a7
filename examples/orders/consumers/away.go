package consumers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/inbox/redisinbox"
)

// passing are errors of the database that do not concern the message: another transaction, too many connections, a server that
// stops, starts or is read-only, and faults that an administrator must repair for all messages.
var passing = map[uint16]bool{
	1205: true, 1213: true, // lock wait, deadlock
	1040: true, 1203: true, 1226: true, // connections
	1053: true, 1077: true, 1927: true, 3169: true, // shutdown, killed
	1290: true, 1792: true, 1836: true, // read-only
	1021: true, 1114: true, // disk full
	1044: true, 1045: true, 1049: true, 1130: true, 1142: true, 1146: true, // rights, a missing schema or table
}

// away reports whether an error is caused by something that is away or busy, so that the message must wait. Any other error
// concerns the message and comes with each attempt.
func away(err error) bool {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return passing[refused.Number]
	}
	var network net.Error
	if errors.As(err, &network) {
		return true
	}
	for _, known := range []error{
		context.Canceled, context.DeadlineExceeded, driver.ErrBadConn, mysql.ErrInvalidConn, sql.ErrConnDone, sql.ErrTxDone, io.EOF, io.ErrUnexpectedEOF,
		redis.ErrPoolTimeout, redis.ErrClosed, shop.ErrMissing, redisinbox.ErrBusy,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return busyRedis(err)
}

// busyRedis reports whether Redis has answered that it cannot work now.
func busyRedis(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "BUSY ", "NOREPLICAS"} {
		if strings.HasPrefix(answer.Error(), prefix) {
			return true
		}
	}
	return false
}
