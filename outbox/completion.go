package outbox

import (
	"errors"
	"time"
)

// Entry is the relay's record of an owned row. Each holder passes it on unchanged with the row's results, so that no lookup of
// the row is needed; only the package that created it reads its content.
type Entry interface{ Row() Identity }

// Completion is the result of one row, to be written into the table. The guards of its UPDATE use its fields. Like Message it is a
// record: one field for each fact.
type Completion struct {
	Identity
	Topic      string // for logs and alerts; "" when the row cannot be read, and for an entry replayed from the journal
	Key        string // ActionFail: the business key and type, for the alert; "" where the row cannot be read
	BizType    string
	Action     Action
	RetryCount int           // the row's count n: a retry writes n+1 where retry_count = n, so a repeated statement counts once
	Delay      time.Duration // ActionRetry: due again this long after the database's now; ActionFail: the same, where no row can be FAILED
	Claim      string        // the token of our claim; "" on the binlog path
	Class      Class         // ActionRetry and ActionFail: of the publish that led to it
	Reason     string        // ActionRetry and ActionFail: for fail_reason
	BrokerID   string        // ActionMarkSent: the broker's id, written back where mapped
	Since      time.Time     // Message.Since; zero for an entry replayed from the journal
	Reported   bool          // ActionFail where no row can be FAILED: the row was reported before
	LogOnly    bool          // Message.LogOnly: the journal remembers that it was sent, its table cannot
	Message    *Message      // ActionFail of such a row: for the failed-message log, because its table may have it no more
	Path       Path          // the message's
	Sends      int           // how often it was handed to the sink since it was read
	TakenOver  bool          // a sweep found it under a claim that is not this process's
	Entry      Entry         // the row's record in the flow; nil when it is read from the journal
}

// Candidate is a row as the sweep's index query or the recovery check returns it: identity and state, no body.
type Candidate struct {
	Identity
	Status     Status
	RetryCount int
	Waiting    bool   // PENDING with a due time in the future of the database's clock
	DueInMilli int64  // milliseconds until it is due by the database's clock; <= 0 when due or without a due time
	Topic      string // so that suspended topics can be skipped
	Key        string // the key that its order is kept by (Message.ShardingKey); "" where the table keeps none
	ClaimToken string // last_exec_time in the database's text form; "" when NULL or not mapped
	Untouched  bool   // PENDING, and the table shows that no status was ever written; false where last_exec_time is not mapped
	Entry      Entry  // set once the row is reserved
}

// DueSlack is how much later than now a row may be due that is published at once: producers write "now" with rounding, and by clocks of their own.
const DueSlack = 2 * time.Second

// Postponed reports whether a row is due later by its producer's will. Order by key leaves it out until its time has come.
func (c *Candidate) Postponed() bool {
	return c.Waiting && c.RetryCount == 0 && time.Duration(c.DueInMilli)*time.Millisecond > DueSlack
}

// Sweep is the result of a complete sweep over all tables.
type Sweep struct {
	Began   time.Time
	AnyAge  bool          // it included rows of any age
	Untried int           // published rows that were never tried and have no due time
	Within  time.Duration // how long a row may wait in the table until sweeps that filter by age have published it
}

// ErrBrokerAway reports that the broker accepts no messages at present: rows stay unchanged.
var ErrBrokerAway = errors.New("the broker takes no messages")

// WriteError is a completion that was not written although the table is available: the table refuses it for its data (a trigger,
// a check, a column that is too narrow), another session holds the row's lock, or the relay does not hold its lease.
type WriteError struct {
	Completion
	Reason    string
	Retryable bool // another session holds the row's lock, or held it shortly before: write it again later
	Fenced    bool // an attempt or a failure that was dropped because the lease is not valid; the claim, if any, is released
}

// Gap records that part of the log between two positions was not read and that the sweep published its rows. It is durable and
// stays until an operator acknowledges it.
type Gap struct {
	ID           uint64    `json:"id"`
	From         Position  `json:"from"`
	To           Position  `json:"to"`
	Cause        GapCause  `json:"cause"`
	At           time.Time `json:"at"`
	Acknowledged bool      `json:"acknowledged"`
}

// GapCause is a closed list: it is a metric label.
type GapCause string

const (
	GapFirstStart   GapCause = "first_start"   // no checkpoint yet: recorded in the history, no alarm
	GapPurged       GapCause = "purged"        // the needed part of the log is gone
	GapShorter      GapCause = "shorter"       // the same server has less history than the checkpoint
	GapLostEvents   GapCause = "lost_events"   // the server wrote an INCIDENT event
	GapUnknownEvent GapCause = "unknown_event" // an event type that this version does not support, inside a transaction
	GapState        GapCause = "state"         // the state directory was lost or corrupt
	GapFailover     GapCause = "failover"      // another server without GTIDs, a copy of the recorded one
	GapOperator     GapCause = "operator"      // checkpoint moved forward, or a new source accepted
)

// GapCauses lists every GapCause, so that all metric series exist from the start.
func GapCauses() []GapCause {
	return []GapCause{GapFirstStart, GapPurged, GapShorter, GapLostEvents, GapUnknownEvent, GapState, GapFailover, GapOperator}
}
