package operator

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Checkpoint is the position from which a restart reads.
type Checkpoint struct {
	Position outbox.Position `json:"position"` // zero before the first start
	Source   string          `json:"source"`   // the recorded server; "" before the first start
	Journal  int             `json:"journal"`  // messages sent whose status the table has not confirmed
}

// Change is something that a person did to the relay or its rows. One that takes long is recorded before its work, and once more after it.
type Change struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`
	By     string    `json:"by"`     // a user of the relay's machine, or the role of a token and where the request came from
	What   string    `json:"what"`   // the command
	Before string    `json:"before"` // what stood there
	After  string    `json:"after"`
	Error  string    `json:"error"` // why it went wrong in the middle; "" when it did not
	// Unfinished is a change that was begun and whose end is not recorded: it is under way, or its process ended in the middle.
	Unfinished bool `json:"unfinished"`
}

// HistoryEntry is one checkpoint of the past.
type HistoryEntry struct {
	Number   uint64          `json:"number"` // what rollback takes
	At       time.Time       `json:"at"`
	Position outbox.Position `json:"position"`
	Source   string          `json:"source"`
	Reason   string          `json:"reason"` // "" for the ordinary way forward
}

// Target says where the checkpoint is to be moved: exactly one of GTID, File with Pos, Latest, Earliest, Time and Entry.
type Target struct {
	GTID     string  `json:"gtid,omitempty"` // an executed set in the server's text form
	File     string  `json:"file,omitempty"`
	Pos      uint64  `json:"pos,omitempty"`
	Latest   bool    `json:"latest,omitempty"`
	Earliest bool    `json:"earliest,omitempty"`
	Time     string  `json:"time,omitempty"`  // behind the last transaction before this time, see ParseTime
	Entry    *uint64 `json:"entry,omitempty"` // an entry of the history (rollback)
	// Republish publishes the SENT rows again that the log has between there and the checkpoint, Limit at most, and moves nothing.
	Republish bool `json:"republish,omitempty"`
	Limit     int  `json:"limit,omitempty"`
	// DryRun asks for the preview alone.
	DryRun bool `json:"dry_run,omitempty"`
}

// Check returns a usage error unless exactly one target is named and it can be one.
func (t Target) Check() error {
	named := 0
	for _, is := range []bool{t.GTID != "", t.File != "" || t.Pos != 0, t.Latest, t.Earliest, t.Time != "", t.Entry != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return Usagef("name exactly one of: gtid, file with pos, latest, earliest, time, or an entry of the history")
	}
	if t.GTID != "" {
		_, errMySQL := outbox.ParseGTIDSet(outbox.MySQL, t.GTID)
		_, errMariaDB := outbox.ParseGTIDSet(outbox.MariaDB, t.GTID)
		if errMySQL != nil && errMariaDB != nil {
			return Usagef("%q is a GTID set of neither MySQL (uuid:1-5) nor MariaDB (0-1-100)", t.GTID)
		}
	}
	switch {
	case t.Republish && (t.Limit < 1 || t.Limit > MaxChanges):
		return Usagef("limit %d: how many rows may be published again must be from 1 to %d", t.Limit, MaxChanges)
	case !t.Republish && t.Limit != 0:
		return Usagef("limit is for republish only")
	}
	if t.Time != "" {
		if _, err := ParseTime(t.Time); err != nil {
			return err
		}
	}
	if t.File != "" || t.Pos != 0 {
		if err := outbox.ParseFile(t.File); err != nil {
			return Usagef("%v", err)
		}
		if t.Pos < 4 {
			return Usagef("pos %d is not in a binlog file: the first event is at 4", t.Pos)
		}
	}
	return nil
}

// maxReason bounds the reason of a pause, in bytes: it is stored, and shown on one line.
const maxReason = 500

// PauseOrder asks for a pause.
type PauseOrder struct {
	Reason string `json:"reason,omitempty"` // in a few words, shown in status and alerts
}

// Check returns a usage error unless the reason is one line of a bounded length.
func (o PauseOrder) Check() error {
	if len(o.Reason) > maxReason || strings.ContainsFunc(o.Reason, unicode.IsControl) || !utf8.ValidString(o.Reason) {
		return Usagef("the reason must be one line of at most %d bytes", maxReason)
	}
	return nil
}

// PauseState is the answer to a pause: the one in force, which may be older than the request.
type PauseState struct {
	Paused *outbox.Pause `json:"paused"`
}

// Preview is what a move of the checkpoint does.
type Preview struct {
	From    outbox.Position `json:"from"`
	To      outbox.Position `json:"to"`
	Applied bool            `json:"applied"` // false: a dry run, nothing was changed
	// Republish is how many SENT rows are to be published again, Republished how many were handed to the broker's client.
	Republish   int `json:"republish"`
	Republished int `json:"republished"`
	// Bytes is how much later in the log To is, negative when it is earlier; null when that is not known.
	Bytes *int64 `json:"bytes"`
	// Between is what the log has between From and To; null when it could not be read.
	Between *PreviewBetween `json:"between"`
	// Rows are those of each table that the full sweep after the move looks at; empty when they could not be counted in time.
	Rows []PreviewRows `json:"rows"`
	// Notes say in sentences what follows from the move: what is read again, what is skipped and left to the sweep, what the
	// server has purged.
	Notes []string `json:"notes"`
}

// PreviewBetween counts what the log has between two positions. The rows are by what their tables show now.
type PreviewBetween struct {
	Transactions int64 `json:"transactions"`
	Rows         int64 `json:"rows"`     // inserted, of all tables
	Pending      int64 `json:"pending"`  // would be sent, or at their due time
	Settled      int64 `json:"settled"`  // SENT, FAILED, claimed or the consumers': nothing is to be done
	Gone         int64 `json:"gone"`     // not in their table any more
	Unknown      int64 `json:"unknown"`  // that the log does not show row by row: the sweep looks at them
	AtLeast      bool  `json:"at_least"` // reading took too long: there are more
	// Purged says that the server has purged the begin of it: what is left is counted.
	Purged        bool  `json:"purged"`
	WithoutStatus int64 `json:"without_status"` // of tables that have none: published again, or never
}

// PreviewRows counts rows of one table, each up to a limit that Notes tell.
type PreviewRows struct {
	Table   string `json:"table"`
	Pending int64  `json:"pending"`
	Sending int64  `json:"sending"`
	Failed  int64  `json:"failed"` // the sweep leaves them alone
}
