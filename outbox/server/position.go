package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// endStatement is where the name of the statement changed: MySQL 8.2 brought the new one, 8.4 took the old one away;
// MariaDB has its own since 10.5.2.
func (i Info) endStatement() string {
	switch {
	case i.Flavor == outbox.MariaDB && i.AtLeast(10, 5, 2):
		return "SHOW BINLOG STATUS"
	case i.Flavor == outbox.MySQL && i.AtLeast(8, 2, 0):
		return "SHOW BINARY LOG STATUS"
	}
	return "SHOW MASTER STATUS"
}

// End is the position behind the last transaction in the log. Its GTID set is never ahead of file and offset, but may lack the
// transactions that are committing: a reader that resumes by it reads some transactions twice and misses none. It needs
// REPLICATION CLIENT (MariaDB: BINLOG MONITOR).
func (i Info) End(ctx context.Context, db *sql.DB) (outbox.Position, error) {
	var gtids string
	if i.Flavor == outbox.MariaDB { // MySQL's is a column of the status
		if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_pos").Scan(&gtids); err != nil {
			return outbox.Position{}, fmt.Errorf("read the end of the binlog: %w", err)
		}
	}
	status, err := i.logStatus(ctx, db)
	if err != nil {
		return outbox.Position{}, err
	}
	if i.Flavor == outbox.MySQL && i.GTID {
		gtids = status["executed_gtid_set"]
	}
	return position(status["file"], status["position"], gtids)
}

// FileEnd is the file and the offset of End, without GTIDs, by one statement.
func (i Info) FileEnd(ctx context.Context, db *sql.DB) (outbox.Position, error) {
	status, err := i.logStatus(ctx, db)
	if err != nil {
		return outbox.Position{}, err
	}
	return position(status["file"], status["position"], "")
}

func (i Info) logStatus(ctx context.Context, db *sql.DB) (map[string]string, error) {
	if i.Reader {
		return nil, fmt.Errorf("the server is a reader of an Aurora cluster and has no binlog: %s", i.Cure(Primary))
	}
	rows, err := Show(ctx, db, i.endStatement())
	if err != nil {
		return nil, fmt.Errorf("read the end of the binlog: %w", err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("the server writes no binlog: %s", i.Cure(LogBin))
	}
	return rows[0], nil
}

func position(file, offset, gtids string) (outbox.Position, error) {
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil || file == "" {
		return outbox.Position{}, fmt.Errorf("the server gives %q, %q as a position", file, offset)
	}
	return outbox.Position{File: file, Offset: n, GTIDs: strings.Join(strings.Fields(gtids), "")}, nil
}

// firstOffset is behind the four magic bytes with which every binlog file begins.
const firstOffset = 4

// Earliest is the oldest position that can still be read. MySQL: with the purged GTIDs. MariaDB has no such set; there
// GTIDs is empty and a resume goes by file.
func (i Info) Earliest(ctx context.Context, db *sql.DB) (outbox.Position, error) {
	files, err := Files(ctx, db)
	if err != nil {
		return outbox.Position{}, err
	}
	p := outbox.Position{File: files[0].Name, Offset: firstOffset}
	if i.Flavor == outbox.MySQL && i.GTID {
		if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_purged").Scan(&p.GTIDs); err != nil {
			return outbox.Position{}, fmt.Errorf("read gtid_purged: %w", err)
		}
		p.GTIDs = strings.Join(strings.Fields(p.GTIDs), "")
	}
	return p, nil
}

// HasFile reports whether the file of a position is still there and as long as the position says. false means a gap: it
// was purged, or the server has lost what it had written.
func (i Info) HasFile(ctx context.Context, db *sql.DB, p outbox.Position) (bool, error) {
	files, err := Files(ctx, db)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		if f.Name == p.File {
			return p.Offset <= f.Size, nil
		}
	}
	return false, nil
}

// Readable says whether the log still has what follows a position: "" if so, else why not, for the operator. Where only the
// server can tell (MariaDB by GTID after a failover), the stream's first answer does.
func (i Info) Readable(ctx context.Context, db *sql.DB, p outbox.Position) (why string, err error) {
	if i.Flavor == outbox.MySQL && p.GTIDs != "" {
		return i.purged(ctx, db, p)
	}
	if p.File == "" {
		return "", nil
	}
	has, err := i.HasFile(ctx, db, p)
	if err != nil || has {
		return "", err
	}
	return fmt.Sprintf("the log file of %s is gone or shorter", p), nil
}

func (i Info) purged(ctx context.Context, db *sql.DB, p outbox.Position) (why string, err error) {
	earliest, err := i.Earliest(ctx, db)
	if err != nil {
		return "", err
	}
	gone, err := outbox.ParseGTIDSet(outbox.MySQL, earliest.GTIDs)
	if err != nil {
		return "", fmt.Errorf("gtid_purged: %w", err)
	}
	have, err := outbox.ParseGTIDSet(outbox.MySQL, p.GTIDs)
	if err != nil {
		return "", fmt.Errorf("GTID set to continue from: %w", err)
	}
	if have.Contains(gone) {
		return "", nil
	}
	return fmt.Sprintf("transactions behind %s were purged from the log: gtid_purged is %s", p, gone), nil
}

// File is one file of the server's log.
type File struct {
	Name string
	Size uint64 // in bytes
}

// Files lists the files of the server's log, oldest first; there is at least one.
func Files(ctx context.Context, db *sql.DB) (files []File, err error) {
	logs, err := Show(ctx, db, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("list the binlog files: %w", err)
	}
	for _, log := range logs {
		size, err := strconv.ParseUint(log["file_size"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the server gives %q as the size of %s", log["file_size"], log["log_name"])
		}
		files = append(files, File{log["log_name"], size})
	}
	if len(files) == 0 {
		return nil, errors.New("the server has no binlog files: log_bin is off")
	}
	return files, nil
}
