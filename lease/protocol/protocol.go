// Package protocol decides which relay holds the lease of a set of tables. It is the lease without its clock, its database and
// its goroutines.
//
// # Guarantee
//
// Of the relays that follow it on one lease table, at most one may publish the rows of a table at any time. A Part decides from
// the rows, its own time and its configuration whether to take the lease; a Held decides how long a confirmed lease lasts. Both
// are plain values: no lock, no I/O, no clock, no goroutine. The test of this package explores every interleaving of three
// relays, a table that loses rows, and a server that lacks the newest writes.
//
// # Assumptions
//
// - Clocks of the relays run at the same speed, within a tenth. The database's time is used to be faster, never to be safe.
// - One server at a time accepts writes, and a server is identified by its server_id. If a server returns under its own server_id
// without writes that it had confirmed (a restored backup, a crash with innodb_flush_log_at_trx_commit other than 1), only relays
// that have read a newer counter detect it.
// - A relay that has never read a lease whose row was lost waits its own lease time, or the longest that it has read. If the lost
// holder's is longer, both may publish for the rest of it.
package protocol

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Record is a row of the lease table: one acquisition.
type Record struct {
	Term    uint64 // number of the acquisition
	Holder  string // the state directory
	Process string // see Process
	Host    string // for people
	Tables  []string
	Ends    string // the database's text; it changes with each renewal; "" when the lease was released
	Ended   bool   // by the database's clock
	Resume  Resume
}

// Resume is the data for the next holder: the position to begin at, and whether an operator has paused the relay. A zero At is
// unknown. Source is the server on which the position was read, or, without a position, the one on which the lease was taken.
type Resume struct {
	Source server.ID
	At     outbox.Position
	Pause  *outbox.Pause // nil when there is none
}

// View is the lease table as one statement read it.
type View struct {
	Server  uint32 // @@server_id
	Counted bool   // there is a counter
	Birth   string // of the counter: a random text, "" when an earlier release created it
	Newest  uint64 // the counter: the term of the newest acquisition
	Rows    []Record
}

// Take is an acquisition. It is done entirely or not at all: only if server and counter are unchanged since they were read, and
// each row of From still ends at the same time.
type Take struct {
	Server uint32
	Birth  string
	Newest uint64
	Next   Record
	From   []Record // the rows that share tables with Next: they lose those tables, and are deleted when none is left
}

// Acquisition identifies the row of a renewal or a release. A row that another relay has taken tables from, or recreated, does
// not match; one on another server matches a release only.
type Acquisition struct {
	Term    uint64
	Process string
	Tables  []string
	Server  uint32
}

// ErrTaken reports that another acquisition or a renewal came first.
var ErrTaken = errors.New("another process was faster")

// Process is the name of one start of a program: the start of the machine, a random text and the lease time. A lease table of an
// older release has no column for the time, and a relay of an older release reads only the first part.
func Process(boot, random string, leaseTime time.Duration) string {
	return boot + "/" + random + "/" + strconv.FormatInt(leaseTime.Milliseconds(), 10) + "ms"
}

// Boot returns the start of the machine on which a process runs.
func Boot(process string) string {
	boot, _, _ := strings.Cut(process, "/")
	return boot
}

// LeaseTime returns that of a process; 0 when unknown, as of an older release.
func LeaseTime(process string) time.Duration {
	parts := strings.Split(process, "/")
	if len(parts) != 3 {
		return 0
	}
	d, err := time.ParseDuration(parts[2])
	if err != nil || d < 0 {
		return 0
	}
	return d
}
