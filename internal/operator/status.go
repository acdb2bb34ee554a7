package operator

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Status answers on one screen: is it working, how far behind, what is stuck and why. It is the JSON contract of
// GET /api/v1/status: fields are added, never renamed. A pointer that is null means that the value is not known.
type Status struct {
	Version       string    `json:"version"`
	StartedAt     time.Time `json:"started_at"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	// MemoryBytes is what the process takes of the machine's memory; 0 where the system does not say it.
	MemoryBytes int64 `json:"memory_bytes"`
	// StateFreeBytes is the room on the file system of the state directory; null where the system does not say it.
	StateFreeBytes *int64 `json:"state_free_bytes"`
	// State is "working", "standby" (another relay is active, and this one would take over), "degraded" (something needs time or attention,
	// work continues) or "stuck" (the process makes no progress, or the reader does not get past one event).
	State string `json:"state"`
	// Lease says which of several relays this one is.
	Lease LeaseStatus `json:"lease"`
	// Paused is an operator's pause; null when there is none.
	Paused *outbox.Pause `json:"paused"`
	// Shadow is what a relay that sends nothing (run --shadow) would have sent, in a sentence.
	Shadow string `json:"shadow,omitempty"`
	// Problems says what is not well, each in one sentence with what to do; empty when all is well.
	Problems []string `json:"problems"`

	Source     SourceStatus     `json:"source"`
	Throughput ThroughputStatus `json:"throughput"`
	// CatchUp is the backlog and how long it will take; null when there is none.
	CatchUp   *CatchUp       `json:"catch_up"`
	Positions Positions      `json:"positions"`
	Tables    []TableStatus  `json:"tables"`
	InFlight  InFlightStatus `json:"in_flight"`
	Sink      SinkStatus     `json:"sink"`
	// WaitingKeys are those of tables with ordering: key whose next row is neither sent nor FAILED.
	WaitingKeys WaitingKeys `json:"waiting_keys"`
	Sweep       SweepStatus `json:"sweep"`
	// Retention is null while no row ever leaves a table.
	Retention *RetentionStatus `json:"retention"`
	// Reconcile is null while nothing is compared on a schedule.
	Reconcile *ReconcileStatus `json:"reconcile"`
	// GapsOpen counts gap records that are not acknowledged.
	GapsOpen int `json:"gaps_open"`
	// NewestFailed is the last row that became FAILED since the start, which may have been set back meanwhile; null when there is
	// none. The tables say how many rows are FAILED now.
	NewestFailed *RowProblem `json:"newest_failed"`
	// Unwritable counts published rows that their table refuses to show as SENT now; NewestUnwritable is the last of
	// them, null when there is none.
	Unwritable       int         `json:"unwritable_rows"`
	NewestUnwritable *RowProblem `json:"newest_unwritable"`
	// OtherRelays work on tables of ours: every message of these tables is published twice.
	OtherRelays []OtherRelay `json:"other_relays"`
}

// LeaseStatus is this relay's part in the lease of its tables.
type LeaseStatus struct {
	// State is "active" (it publishes), "lapsed" (it could not renew in time and sends nothing), "standby", "alone" (it publishes without
	// a lease, for the reason Error) or "off" (the same, because the configuration says so).
	State        string    `json:"state"`
	Since        time.Time `json:"since"`         // when the state began
	SinceSeconds float64   `json:"since_seconds"` // how long ago that is
	Active       string    `json:"active"`        // of a standby: host and state directory of the active relay; "" when it is not known
	Term         uint64    `json:"term"`          // number of the acquisition that this relay holds or waits for; 0 when there is none
	Why          string    `json:"why,omitempty"` // of a standby: why it does not become active
	ValidSeconds float64   `json:"valid_seconds"` // for how long it may publish without another renewal
	Error        string    `json:"error"`         // of the last statement, or why there is no lease; "" when all is well
}

// OtherRelay is another relay that was seen on one of the tables.
type OtherRelay struct {
	Table      string `json:"table"`
	Connection uint64 `json:"connection"` // its connection, by the number that SHOW PROCESSLIST shows
	From       string `json:"from"`       // where that comes from, host:port; "" when the account may not see it
}

// RowProblem is one row that needs a person.
type RowProblem struct {
	Table     string    `json:"table"`
	ID        string    `json:"id"`
	MessageID string    `json:"message_id"`
	Class     string    `json:"class"`  // what kind of refusal; "" for an unwritable row
	Reason    string    `json:"reason"` // the broker's or the server's words
	At        time.Time `json:"at"`
}

// SourceStatus is the binlog reader's view of the server.
type SourceStatus struct {
	Address string `json:"address"`
	Server  string `json:"server"`       // flavour, version and identity; "" before the first connection
	State   string `json:"reader_state"` // connected, connecting, waiting (to connect again), stuck (at one event, see Error), paused, standby
	Error   string `json:"error"`        // of the last attempt; "" while connected
	Away    string `json:"away"`         // why the database did not answer a question of this status; "" when it did
	Warning string `json:"warning"`      // what is wrong though the binlog is being read, and what to do; "" when nothing is known
	// Settings are those of the server that were changed since the start and must be changed back, each with what follows and what to do.
	Settings []string `json:"settings"`
	// LagSeconds is how old the log is that is being read: 0 when all was read, growing while the server is away.
	LagSeconds *float64 `json:"lag_seconds"`
	// BehindBytes is how much log the server has beyond the read position, in the same file sequence.
	BehindBytes *int64 `json:"behind_bytes"`
	// LastEventSeconds is the age of the last event or heartbeat.
	LastEventSeconds *float64 `json:"last_event_seconds"`
}

// ThroughputStatus is the speed over the last seconds and the totals since the start.
type ThroughputStatus struct {
	// Rate is messages acknowledged by the broker per second, over the last 10 s or so.
	Rate float64 `json:"rate_per_second"`
	// Latency is from the commit to the broker's acknowledgement, binlog path only, in milliseconds; null before the first.
	LatencyP50 *float64 `json:"latency_p50_ms"`
	LatencyP99 *float64 `json:"latency_p99_ms"`

	Published uint64 `json:"published_total"` // acknowledged by the broker
	Retried   uint64 `json:"retried_total"`   // refused, to be tried again
	Failed    uint64 `json:"failed_total"`    // rows that became FAILED
	Swept     uint64 `json:"swept_total"`     // of Published, those that a sweep found
	Deferred  uint64 `json:"deferred_total"`  // left by the binlog path to the sweep

	// Topics are those with the most messages over the last seconds and since the start, 50 at most.
	Topics []TopicStatus `json:"topics"`
}

// CatchUp is a backlog in the log (lag) or in the tables (rows that are due).
type CatchUp struct {
	LagSeconds  float64 `json:"lag_seconds"`
	Rows        int64   `json:"rows"`
	RowsAtLeast bool    `json:"rows_at_least"` // there are more than are counted
	// The change over the last two minutes, positive when the backlog shrinks; null in the first seconds.
	LagPerSecond  *float64 `json:"lag_per_second"`
	RowsPerSecond *float64 `json:"rows_per_second"`
	// Seconds is about how long it takes at that speed; null while it does not shrink or is not known.
	Seconds *float64 `json:"seconds"`
}

// TopicStatus is what the broker answered to one topic's messages.
type TopicStatus struct {
	Topic string `json:"topic"`
	// Rates are over the last 10 s or so.
	Rate      float64 `json:"rate_per_second"`   // acknowledged
	ErrorRate float64 `json:"errors_per_second"` // any other answer
	Published uint64  `json:"published_total"`
	Errors    uint64  `json:"errors_total"`
}

// Positions is the path of a transaction through the service, from the newest to the oldest. A zero position is not known
// yet.
type Positions struct {
	Server     outbox.Position `json:"server"`     // end of the server's log
	Read       outbox.Position `json:"read"`       // read from the stream
	Offered    outbox.Position `json:"offered"`    // handed to the pipeline
	Settled    outbox.Position `json:"settled"`    // everything before it is acknowledged, final or deferred
	Checkpoint outbox.Position `json:"checkpoint"` // on disk; a restart reads from here
	// CheckpointSeconds is how long ago the checkpoint was written; null before the first.
	CheckpointSeconds *float64 `json:"checkpoint_age_seconds"`
}

// TableStatus counts one table's rows by state, as sampled at SampledAt. Ages and waits are of that time.
type TableStatus struct {
	Name string `json:"name"`
	// Rows are by outbox.Status name, and by the name of each state of the consumers that the configuration names. Pending rows
	// are due; those that are due later are "delayed". Held are the rows in states that have no configured name.
	Rows map[string]int64 `json:"rows"`
	// Kinds say how exact each count is: "exact", "at_least" (counting stopped there) or "estimate" (of the server).
	Kinds map[string]string `json:"kinds"`
	// OldestPendingSeconds is the age of the oldest row that should have been sent; null when there is none.
	OldestPendingSeconds *float64 `json:"oldest_pending_seconds"`
	// OldestSendingSeconds is how far the oldest claim of a SENDING row lies from the database's clock, in either direction; null
	// when there is none.
	OldestSendingSeconds *float64 `json:"oldest_sending_seconds"`
	// LongestRetrySeconds is how long the retry that is due last has to wait; null when there is none.
	LongestRetrySeconds *float64 `json:"longest_retry_seconds"`
	// CreatedAheadSeconds is how far ahead of the database's clock the newest row was made; null when it was not.
	CreatedAheadSeconds *float64 `json:"created_ahead_seconds"`
	// FailedEverySeconds is how long a row is FAILED before it is tried again; null where that is never. FailedRetried counts the rows
	// that were tried again since the start, FailedRetryError is why that does not work; "" when it does.
	FailedEverySeconds *float64 `json:"failed_every_seconds"`
	FailedRetried      int      `json:"failed_retried"`
	FailedRetryError   string   `json:"failed_retry_error"`
	// Redelivery is what becomes of SENT rows that no consumer has finished; null where they are left alone.
	Redelivery *RedeliveryStatus `json:"redelivery"`
	// SelectFailed is the statement that shows the FAILED rows.
	SelectFailed string `json:"select_failed"`
	// SampledAt is when all of this was so, SampledSeconds how long ago that is.
	SampledAt      *time.Time `json:"sampled_at"`
	SampledSeconds *float64   `json:"sampled_seconds"`
}

// RedeliveryStatus describes the SENT rows of a table that no consumer has finished.
type RedeliveryStatus struct {
	AfterSeconds float64 `json:"after_seconds"`
	Max          int     `json:"max"`
	Until        string  `json:"until"`       // the state of the consumers that ends it
	Redelivered  int     `json:"redelivered"` // copies that went out since the start
	Marked       int     `json:"marked"`      // rows since the start that the consumers' service says are done
	GivenUp      int     `json:"given_up"`    // rows that went out so often as they may and are not finished
	Full         bool    `json:"full"`        // the number of rows at which no other goes out is reached
	Error        string  `json:"error"`       // of the last look; "" when it had none
}

// InFlightStatus is what is in memory.
type InFlightStatus struct {
	Messages    int   `json:"messages"` // without an answer of the broker
	Bytes       int64 `json:"bytes"`
	MaxMessages int   `json:"max_messages"`
	MaxBytes    int64 `json:"max_bytes"`
	AckPending  int   `json:"ack_pending"` // outcomes that MySQL has not confirmed, without those that it refuses
}

// SinkStatus is the broker as the pipeline sees it.
type SinkStatus struct {
	Kind            string           `json:"kind"`    // rocketmq, kafka, stdout
	Breaker         string           `json:"breaker"` // closed, half-open, open, lease-not-held (nothing is sent, and the broker is not the cause)
	Reason          string           `json:"reason"`  // of an open breaker
	SuspendedTopics []SuspendedTopic `json:"suspended_topics"`
}

// WaitingKeys counts the keys that wait for an earlier row of theirs.
type WaitingKeys struct {
	Keys  int          `json:"keys"`
	Rows  int          `json:"rows"`  // of them, as far as they are remembered
	First []WaitingKey `json:"first"` // the first of those that wait longest, at most ten
}

// WaitingKey is one key that waits.
type WaitingKey struct {
	Table     string    `json:"table"`
	Topic     string    `json:"topic"`
	Key       string    `json:"key"`
	MessageID string    `json:"message_id"` // of the row that it waits for
	Reason    string    `json:"reason"`     // why that was not sent
	Since     time.Time `json:"since"`
	Rows      int       `json:"rows"` // that wait, with that one
}

// SuspendedTopic is a topic whose rows wait in the table until it works again.
type SuspendedTopic struct {
	Topic  string `json:"topic"`
	Reason string `json:"reason"`
}

// SweepStatus is the fallback's view.
type SweepStatus struct {
	Running     bool     `json:"running"`
	LastSeconds *float64 `json:"last_seconds"` // since the last one ended; null before the first
	LastRows    int      `json:"last_rows"`    // it handed to the sink
}

// RetentionStatus is what takes old rows out of the tables.
type RetentionStatus struct {
	Running     bool     `json:"running"`
	Paused      string   `json:"paused"`       // why it waits; "" when it does not
	LastSeconds *float64 `json:"last_seconds"` // since a pass came to the end of every table; null before the first
	Rows        int      `json:"rows"`         // have left in the last pass, or so far in the one that runs
	Error       string   `json:"error"`        // of the last pass; "" when it had none
}

// ReconcileStatus is what the last scheduled comparison of the tables with the topics found.
type ReconcileStatus struct {
	Running     bool     `json:"running"`
	LastSeconds *float64 `json:"last_seconds"` // since one came to its end; null before the first
	Missing     int64    `json:"missing"`      // rows that are SENT and not in their topic
	Different   int64    `json:"different"`    // that have another body there
	Repeated    int64    `json:"repeated"`     // that are there more than once
	Error       string   `json:"error"`        // of the last one; "" when it came to its end
}
