package server

import (
	"context"
	"fmt"
	"strconv"
)

// HistoryLength is the length of InnoDB's history list: the transactions whose old row versions the server has not purged yet. It grows
// while an old read view is open or while the purge does not keep up, and statements get slower with it. MySQL asks for the PROCESS
// privilege; false when the account may not see it.
func HistoryLength(ctx context.Context, db Querier) (length int64, known bool, err error) {
	value := ""
	rows, err := Show(ctx, db, "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'") // MariaDB
	if err == nil && len(rows) > 0 {
		value = rows[0]["value"]
	} else if err == nil {
		rows, err = Show(ctx, db, "SELECT COUNT AS value FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'")
		if Code(err) == 1227 { // SPECIFIC_ACCESS_DENIED_ERROR
			return 0, false, nil
		}
		if len(rows) > 0 {
			value = rows[0]["value"]
		}
	}
	if err == nil {
		length, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read the length of the history list: %w", err)
	}
	return length, true, nil
}
