// Package outbox defines the data types of the relay: the identity of a row, the message made from it, its transaction, positions
// and GTID sets, and the completion of a publish.
//
// Guarantee: values only. No I/O, no clock, no goroutine, and no imports outside the standard library, so every other package may
// import it.
package outbox

import "time"

// Identity names one row for its whole life: auto-increment ids are reused after TRUNCATE or in a recreated table, a message id
// is not, so progress, journal, claims and every guard compare all three.
type Identity struct {
	Table     string // schema.table, as the server writes it
	ID        string // primary key in the text form the server prints; digits only for integer keys
	MessageID string // the message id column, or the derived one (biz_type + ":" + biz_key)
}

// Header is one name and value of a message. Values may hold any bytes; sinks refuse what they cannot carry.
type Header struct{ Name, Value string }

// Path is how a message reached the sink.
type Path uint8

const (
	PathBinlog     Path = iota // read from the binlog, milliseconds after the commit
	PathSweep                  // found in the table by the sweep
	PathTimer                  // published by a timer when it became due
	PathRedelivery             // SENT, and published again because no consumer has finished it; it stays SENT whatever the broker answers
)

// String returns the label value used in metrics.
func (p Path) String() string {
	return [...]string{"binlog", "sweep", "timer", "redelivery"}[p]
}

// NoPartition is Message.Partition of a row that does not choose its partition.
const NoPartition int32 = -1

// Message is one row of an outbox table. The binlog reader or the sweep's read-back creates it. Afterwards only Entry and Later
// change; both paths yield equal bytes for the same row. It is a record: one field for each column that some layout has, and for what is known of its way.
type Message struct {
	Identity
	Topic       string
	Tag         string   // RocketMQ tag; a header in Kafka
	Key         string   // business key: Kafka record key, RocketMQ KEYS; "" when the row has none
	ShardingKey string   // chooses partition and queue; equal to Key unless mapped to a column of its own
	BizType     string   // "" unless mapped
	Headers     []Header // in the order of the JSON object
	Body        []byte   // nil for SQL NULL, empty for ''
	Partition   int32    // NoPartition unless mapped and set

	CreatedAt time.Time // zero unless mapped
	// Since is the start of its latency by our clock: the commit if the log has it to the microsecond, else the time when the row
	// was read. For a row with a due time that did not come from the log: its due time.
	Since time.Time

	Path       Path
	Status     Status        // when the row was read, before a claim of ours
	Untouched  bool          // see Candidate.Untouched
	DueAt      time.Time     // next_retry_time; zero when NULL or not mapped
	RetryCount int           // when the row was read; the guard of a refusal
	Grace      time.Duration // how long the application may publish it itself; 0 for none
	MaxRetry   int           // the row's own limit of attempts; negative when not mapped or NULL
	Claim      string        // the claim token this process wrote (sweep path only), in the database's text form

	LogOnly bool   // its table has no status: the row is only in the log, no sweep finds it, and nothing is written to it
	Fault   string // why a row of such a table can never be a message; "" for all others

	// Later asks the broker to deliver the message at DueAt. The flow sets it where the sink supports it (sink.Delayer).
	Later bool
	Entry Entry // set by the flow when it accepts the message, before other parts get it
}

// Size is the memory of the message in bytes, as every byte limit counts it.
func (m *Message) Size() int {
	n := 256 + len(m.Body) + len(m.Topic) + len(m.Tag) + len(m.Key) + len(m.MessageID) + len(m.ID)
	for _, h := range m.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// Txn is one committed transaction of the log, passed on with its ownership at its end. Transactions without rows of mapped
// tables are passed on too: they move the checkpoint.
type Txn struct {
	End         Position  // file and offset after the transaction; GTIDs is empty here
	GTID        GTID      // of this transaction; zero when the server assigns none
	CommittedAt time.Time // by the database's clock, to the microsecond where the log has it; zero when unknown
	Messages    []*Message
	Deferred    []Deferred // rows of mapped tables that the reader left to the sweep
	// More: this is a piece of a transaction that is too large for memory, and the rest follows. End is the end of the previous
	// transaction, because reading cannot resume inside one. Only LogOnly rows come in pieces.
	More bool
}

// Deferred counts rows of one table that the fast path leaves to the sweep.
type Deferred struct {
	Table string // "" when the log does not say which: it may be any mapped table
	Cause Cause
	Rows  int // 0 when the log does not say how many
}

// Cause is why the binlog path did not publish a row; it is a metric label, so the list is closed.
type Cause string

const (
	CauseXA        Cause = "xa"        // inside an XA branch: outcome unknown at PREPARE
	CauseStatement Cause = "statement" // a Query event changed the table: no row images
	CauseUnmapped  Cause = "unmapped"  // columns could not be named with certainty, or a needed one is missing
	CauseRewritten Cause = "rewritten" // UPDATE or DELETE on the same table in the same transaction
	CauseOversize  Cause = "oversize"  // transaction above max_transaction_bytes
	CauseGap       Cause = "gap"       // inside a gap of the log
	CauseNotDue    Cause = "not_due"   // to be published later
	CauseGrace     Cause = "grace"     // the application may still publish it itself
	CauseStatus    Cause = "status"    // does not start as PENDING
	CauseTopic     Cause = "topic"     // its topic is suspended
	CauseOutage    Cause = "outage"    // its broker, partition or topic is away while others work
	CauseTable     Cause = "table"     // its table takes no statuses or cannot be read for some time, and others can
	CauseUnknown   Cause = "unknown"   // an event type that this version does not support, inside a transaction
	CauseNotFound  Cause = "not_found" // in the recovery window: not (yet) visible in the table
	CauseWaiting   Cause = "waiting"   // in the recovery window: waits for its retry
	CauseOrder     Cause = "order"     // an earlier row of its key is not final (tables[].ordering: key)
)

// Causes lists every Cause, so that all metric series exist from the start.
func Causes() []Cause {
	return []Cause{
		CauseXA, CauseStatement, CauseUnmapped, CauseRewritten, CauseOversize, CauseGap, CauseNotDue, CauseGrace,
		CauseStatus, CauseTopic, CauseOutage, CauseTable, CauseUnknown, CauseNotFound, CauseWaiting, CauseOrder,
	}
}

// Triggers reports whether a deferred row must be looked up at once: every cause with which the row may be PENDING and due now.
func (c Cause) Triggers() bool {
	switch c {
	case CauseNotDue, CauseGrace, CauseStatus, CauseTopic, CauseOutage, CauseTable, CauseWaiting, CauseOrder:
		return false
	}
	return true
}
