package server

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Purge is what decides when a file of the binlog is removed.
type Purge uint8

const (
	ByRetention Purge = iota // after LogRetention; never by itself when that is 0
	Unset                    // the service has a retention of its own, and it is not set: as soon as the service does not need the file
	Unknown                  // the service has a retention of its own, and the account may not ask for it
	InConsole                // the service has a retention of its own, which no statement shows
)

// RetentionRight is the privilege with which the retention of RDS and Aurora can be asked.
const RetentionRight = "EXECUTE ON PROCEDURE mysql.rds_show_configuration"

// askPurge replaces the retention that the variables show on services that purge by a rule of their own: RDS and Aurora by a
// configuration with a procedure, whatever binlog_expire_logs_seconds is; Alibaba Cloud RDS and TencentDB by their console; Azure by
// that variable, whose 0 means at once.
func (i *Info) askPurge(ctx context.Context, conn *sql.Conn) error {
	switch {
	case i.Platform == Azure && i.LogRetention == 0:
		i.Purge = Unset
	case i.Platform == AliyunRDS, i.Platform == TencentDB:
		i.LogRetention, i.Purge = 0, InConsole
	case i.Platform == RDS, i.Platform == Aurora && !i.Reader:
		i.LogRetention, i.Purge = 0, Unset
		rows, err := Show(ctx, conn, "CALL mysql.rds_show_configuration")
		var answer *mysql.MySQLError
		if errors.As(err, &answer) {
			i.Purge = Unknown
			return nil
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			if hours, err := strconv.ParseFloat(row["value"], 64); err == nil && row["name"] == "binlog retention hours" {
				i.LogRetention, i.Purge = time.Duration(hours*float64(time.Hour)), ByRetention
			}
		}
	}
	return nil
}

// retention is the finding about how long the binlog is kept; false when there is none.
func (i Info) retention() (Finding, bool) {
	f := Finding{Severity: Warning, Subject: "server.binlog_expire_logs_seconds", Fix: i.Cure(ExpireLogs)}
	if i.Platform == RDS || i.Platform == Aurora {
		f.Subject = "server.binlog retention hours"
	}
	switch {
	case i.Purge == Unknown:
		return Finding{Severity: NotChecked, Subject: f.Subject, What: "needs " + RetentionRight + ": how long " + string(i.Platform) + " keeps binlogs"}, true
	case i.Purge == InConsole:
		return Finding{Severity: NotChecked, Subject: f.Subject, What: "how long " + string(i.Platform) + " keeps binlogs: only its console shows it; it must be longer than the longest stop"}, true
	case i.Purge == Unset:
		f.What = "it is not set, and " + string(i.Platform) + " removes a binlog as soon as it does not need the file itself: a short stop leaves a gap, and a full sweep must stand in"
		return f, true
	case i.LogRetention > 0 && i.LogRetention < shortRetention:
		f.What = "binlogs are kept for " + i.LogRetention.String() + ": a longer stop leaves a gap, and a full sweep must stand in"
		return f, true
	}
	return Finding{}, false
}
