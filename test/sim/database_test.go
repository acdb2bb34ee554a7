package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

const (
	topicA = "orders"
	topicB = "invoices"

	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
)

// database is the table, the log, and who the server is.
type database struct {
	flavor   outbox.Flavor
	id       server.ID
	failed   int // failovers so far
	replaced int // how often a server with another history replaced it

	table              map[primary]*row
	lives              []*row // every row that was ever committed
	byID               map[outbox.Identity]*row
	nextID, nextSideID int
	nextM              int // message ids are never reused
	open               int // transactions under way
	shown              int // rows that were in the log

	visible time.Time // when the last transaction of the log is visible

	log      []*entry
	grown    chan struct{} // closed at the next append
	file     int
	offset   uint64
	seq      uint64
	executed *outbox.GTIDSet
	firstLog int // index of the first entry that is not purged
	purged   string
}

// entry is one transaction of the log.
type entry struct {
	end      outbox.Position // file and offset
	gtid     outbox.GTID
	after    string // the executed set behind it
	at       time.Time
	rows     []*row // in the log as INSERTs, with what they had at commit
	left     []*row // that the reader defers
	deferred []outbox.Deferred
	reason   string
}

// row is a row of the outbox table and what became of it.
type row struct {
	outbox.Identity
	number   int
	key      string
	topic    string
	maxRetry int
	kind     kind
	entry    int // in the log; -1 when it is not there
	nth      int // of the rows that the log has shown, from 1; 0 when it has not
	place    int // in its transaction

	refusals   int  // how often the broker refuses it
	poison     bool // the broker never takes it
	logOnly    bool // of the table without a status
	unwritable bool // the table refuses to show it as SENT
	grace      time.Duration

	version   int // of the body
	status    outbox.Status
	retries   int
	due       time.Time
	token     string
	created   time.Time
	committed time.Time
	visible   time.Time
	final     time.Time // when it became SENT or FAILED
	gone      bool      // deleted or truncated
	locked    time.Time // a session holds its lock until then

	first struct { // as the log shows it
		status outbox.Status
		due    time.Time
	}
	account
}

func (d *database) init(p *plan) {
	d.flavor, d.id = outbox.MySQL, server.ID{Flavor: outbox.MySQL, UUID: uuidA, ServerID: 1}
	if p.logging == mariaDB {
		d.flavor, d.id = outbox.MariaDB, server.ID{Flavor: outbox.MariaDB, ServerID: 1}
	}
	d.table, d.byID = map[primary]*row{}, map[outbox.Identity]*row{}
	d.grown = make(chan struct{})
	d.file, d.offset = 1, 4
	d.executed = outbox.NewGTIDSet(d.flavor)
}

// end is the position behind the last transaction. Callers hold mu.
func (w *world) end() outbox.Position {
	return outbox.Position{File: w.fileName(), Offset: w.offset, GTIDs: w.gtids(w.executed)}
}

func (w *world) gtids(set *outbox.GTIDSet) string {
	if w.plan.logging == mysqlFiles {
		return ""
	}
	return set.String()
}

func (w *world) fileName() string { return fmt.Sprintf("binlog.%06d", w.file) }

// append puts a transaction into the log. Callers hold mu.
func (w *world) append(e *entry) int {
	w.offset += 300
	e.end = outbox.Position{File: w.fileName(), Offset: w.offset}
	e.at = time.Now()
	w.seq++
	e.gtid = w.nextGTID()
	w.executed.Add(e.gtid)
	e.after = w.gtids(w.executed)
	w.log = append(w.log, e)
	close(w.grown)
	w.grown = make(chan struct{})
	w.note(0, "log", "", e.reason+" "+e.end.String(), len(e.rows))
	return len(w.log) - 1
}

func (w *world) nextGTID() outbox.GTID {
	switch {
	case w.plan.logging == mysqlFiles:
		return outbox.GTID{}
	case w.plan.logging == mariaDB:
		return outbox.GTID{Source: pick(newDice(w.seed, "domain", w.seq), "0", "0", "7"), Server: w.id.ServerID, Seq: w.seq}
	}
	source := w.id.UUID
	if newDice(w.seed, "tag", w.seq).chance(0.15) {
		source += ":batch"
	}
	return outbox.GTID{Source: source, Seq: w.seq}
}

// rotate begins a new file. Callers hold mu.
func (w *world) rotate() {
	w.file++
	w.offset = 4
	w.note(0, "rotate", "", w.fileName(), 0)
}

// purge removes every file but the present one. Callers hold mu.
func (w *world) purge() {
	w.rotate()
	w.firstLog = len(w.log)
	w.purged = w.gtids(w.executed)
	w.note(0, "purge", "", w.purged, 0)
}

// failover puts a server with the same rows and transactions in place of the present one; its files are its own. Callers
// hold mu.
func (w *world) failover() {
	if w.plan.logging == mysqlFiles {
		return
	}
	w.failed++
	w.id.ServerID++
	w.leases.moved(w.id.ServerID)
	if w.flavor == outbox.MySQL {
		w.id.UUID = fmt.Sprintf("%s%02d", uuidA[:34], w.failed)
	}
	w.file, w.offset = 1+w.failed, 4
	for i, e := range w.log { // old entries stay as they are for those who hold them
		moved := *e
		w.offset += 200
		if i%10 == 9 {
			w.rotate()
		}
		moved.end = outbox.Position{File: w.fileName(), Offset: w.offset}
		w.log[i] = &moved
	}
	w.note(0, "failover", "", w.id.String(), 0)
}

// replace puts a server in place of the present one that has its rows and not its history. Callers hold mu.
func (w *world) replace() {
	w.failed++
	w.replaced++
	w.id.ServerID += 100
	w.leases.moved(w.id.ServerID)
	if w.flavor == outbox.MySQL {
		w.id.UUID = fmt.Sprintf("%s%02d", uuidA[:34], w.failed)
	}
	w.file, w.offset, w.firstLog, w.purged, w.log = 1, 4, 0, "", nil
	w.executed = outbox.NewGTIDSet(w.flavor)
	for _, r := range w.lives {
		r.entry, r.excused = -1, r.excused || r.logOnly
	}
	w.append(&entry{reason: "before"})
	w.note(0, "replaced", "", w.id.String(), 0)
}

// readable reports whether the log still has the transactions behind a position. Callers hold mu.
func (w *world) readable(from outbox.Position) bool {
	if from.GTIDs != "" && w.flavor == outbox.MySQL {
		have, err1 := outbox.ParseGTIDSet(w.flavor, from.GTIDs)
		gone, err2 := outbox.ParseGTIDSet(w.flavor, w.purged)
		return err1 == nil && err2 == nil && have.Contains(gone)
	}
	return w.startIndex(from) >= w.firstLog
}

// startIndex is the first entry behind a position. Callers hold mu.
func (w *world) startIndex(from outbox.Position) int {
	if from.GTIDs == "" || w.plan.logging == mysqlFiles {
		return w.indexBehind(from)
	}
	have, err := outbox.ParseGTIDSet(w.flavor, from.GTIDs)
	if err != nil {
		w.violation("position", "GTID set %q: %v", from.GTIDs, err)
		return len(w.log)
	}
	i := slices.IndexFunc(w.log, func(e *entry) bool {
		one := outbox.NewGTIDSet(w.flavor)
		one.Add(e.gtid)
		return !have.Contains(one)
	})
	if i < 0 {
		return len(w.log)
	}
	return i
}

// further reports whether b is a or behind it.
func further(flavor outbox.Flavor, a, b outbox.Position) bool {
	switch {
	case a.GTIDs == "" || b.GTIDs == "":
		return b.Compare(a) >= 0
	case a.GTIDs == b.GTIDs:
		return true
	}
	sa, err1 := outbox.ParseGTIDSet(flavor, a.GTIDs)
	sb, err2 := outbox.ParseGTIDSet(flavor, b.GTIDs)
	return err1 == nil && err2 == nil && sb.Contains(sa)
}

// indexOf counts the entries below a position of any form. Callers hold mu.
func (w *world) indexOf(at outbox.Position) int {
	if at.GTIDs != "" {
		if n := w.indexBehind(at); at.File != "" && n > 0 && w.log[n-1].after == at.GTIDs {
			return n // what most positions say in both forms
		}
		return w.startIndex(at)
	}
	return w.indexBehind(at)
}

// indexBehind counts the entries that end at or before a file and offset. Callers hold mu.
func (w *world) indexBehind(at outbox.Position) int {
	i, _ := slices.BinarySearchFunc(w.log, at, func(e *entry, at outbox.Position) int {
		if e.end.Compare(at) <= 0 {
			return -1
		}
		return 1
	})
	return i
}

// boundary is the position behind the first n entries. Callers hold mu.
func (w *world) boundary(n int) outbox.Position {
	e := w.log[n-1]
	at := e.end
	at.GTIDs = e.after
	return at
}

// newRow makes a row that is not in the table yet, as INSERT does: it takes its id now. Callers hold mu.
func (w *world) newRow(t txnPlan, place int) *row {
	w.nextID++
	w.nextM++
	d := newDice(w.seed, "row", uint64(w.nextM))
	r := &row{
		Identity: outbox.Identity{Table: tableName, MessageID: "m" + strconv.Itoa(w.nextM)},
		number:   w.nextID, kind: t.kind, place: place, entry: -1, topic: topicA, maxRetry: -1, created: time.Now(), grace: w.plan.grace,
	}
	if d.chance(0.9) {
		r.key = "k" + strconv.Itoa(d.n(6))
	}
	if d.chance(0.25) {
		r.topic = topicB
	}
	if d.chance(0.1) {
		r.maxRetry = d.n(3)
	}
	switch {
	case d.chance(0.03):
		r.poison = true
	case d.chance(0.06):
		r.refusals = d.in(1, 5)
	case d.chance(0.02) && !w.plan.quiet:
		r.unwritable = true
	}
	w.chooseTable(r, d)
	r.ID = strconv.Itoa(r.number)
	switch {
	case t.kind == delayed:
		r.due = time.Now().Add(d.between(2500*time.Millisecond, 6*time.Second))
	case t.kind == logged:
		r.Table, r.ID, r.logOnly, r.unwritable, r.maxRetry = logTable, "L"+r.ID, true, false, -1
		r.grace = 0
	case t.kind == heldAtOnce:
		r.status = outbox.Held
	case d.chance(0.1):
		r.due = time.Now().Add(d.between(-time.Second, time.Second)) // producers write "now"
	}
	return r
}

// message is the row as the table shows it now. Callers hold mu.
func (r *row) message() *outbox.Message {
	return &outbox.Message{
		Identity: r.Identity, Topic: r.topic, Key: r.key, ShardingKey: r.key, Partition: outbox.NoPartition, MaxRetry: r.maxRetry,
		Body: []byte(r.MessageID + "/" + strconv.Itoa(r.version)), CreatedAt: r.created, Since: time.Now(),
		Status: r.status, DueAt: r.due, RetryCount: r.retries, LogOnly: r.logOnly, Grace: r.grace,
	}
}

// logged is the row as the log shows it. Callers hold mu.
func (r *row) logged() *outbox.Message {
	m := r.message()
	m.Body = []byte(r.MessageID + "/0")
	m.Status, m.DueAt, m.RetryCount = r.first.status, r.first.due, 0
	return m
}

// binlogState is MariaDB's gtid_binlog_state: the last transaction of each domain and server. Callers hold mu.
func (w *world) binlogState() string {
	last := map[string]uint64{}
	for _, e := range w.log {
		last[fmt.Sprintf("%s-%d", e.gtid.Source, e.gtid.Server)] = e.gtid.Seq
	}
	text := ""
	for origin, seq := range last {
		text += fmt.Sprintf(",%s-%d", origin, seq)
	}
	return strings.TrimPrefix(text, ",")
}
