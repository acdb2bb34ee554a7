package reconcile

import (
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Report is what a run found. Its JSON is a contract.
type Report struct {
	From  time.Time `json:"from"` // of the rows; UTC
	To    time.Time `json:"to"`
	Equal bool      `json:"equal"` // nothing is missing, extra, repeated or different

	Tables []Group `json:"tables"` // by table and topic, in order
	Topics []Topic `json:"topics"` // that were read, in order

	// Examples, at most as many of each kind as were asked for; the counts are above.
	Missing   []Message `json:"missing"`
	Extra     []Message `json:"extra"`
	Repeated  []Message `json:"repeated"`
	Different []Message `json:"different"`

	Notes       []string `json:"notes"`       // what limits the result
	Republished int64    `json:"republished"` // missing rows that were set back to PENDING
	// ToRepublish are the missing rows of topics that still hold the whole window, by table; only where they were asked for.
	ToRepublish []outbox.Identity `json:"-"`
}

// Group counts the rows of one table in the window that name one topic.
type Group struct {
	Table string `json:"table"`
	Topic string `json:"topic"`

	Rows    int64 `json:"rows"` // the sum of the next five
	Sent    int64 `json:"sent"`
	NotSent int64 `json:"not_sent"` // PENDING, SENDING, and SENT to a broker that keeps the message until it is due
	Failed  int64 `json:"failed"`
	Held    int64 `json:"held"`   // in states of consumers or operators
	Faulty  int64 `json:"faulty"` // cannot be made a message as they are now; their topic is not known

	Missing   int64 `json:"missing"`   // SENT, and not in the topic
	Repeated  int64 `json:"repeated"`  // in the topic more than once
	Copies    int64 `json:"copies"`    // that these have beyond the first
	Different int64 `json:"different"` // in the topic with another body
}

// Topic counts the records of one topic that were read, with the margin around the window.
type Topic struct {
	Topic     string `json:"topic"`
	Records   int64  `json:"records"`
	Extra     int64  `json:"extra"`      // of a time in the window, with a message id that no row has
	WithoutID int64  `json:"without_id"` // without a message id: of another producer
}

// Message is one example.
type Message struct {
	Table     string     `json:"table,omitempty"`
	ID        string     `json:"id,omitempty"` // primary key, of what is missing
	MessageID string     `json:"message_id"`
	Topic     string     `json:"topic"`
	Place     string     `json:"place,omitempty"` // in the topic; of what is repeated, the last copy that was read
	At        *time.Time `json:"at,omitempty"`    // of the record
	Copies    int64      `json:"copies,omitempty"`
}

// isEqual reports whether nothing is missing, extra, repeated or different.
func (r *Report) isEqual() bool {
	for _, g := range r.Tables {
		if g.Missing+g.Repeated+g.Different > 0 {
			return false
		}
	}
	for _, t := range r.Topics {
		if t.Extra > 0 {
			return false
		}
	}
	return true
}
