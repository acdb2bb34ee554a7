// Package table is a mapped outbox table: which column holds what, which code means which status, what the table can and what it lacks, and the parts of
// SQL that name its columns. The binlog reader and the statements of outbox/store build messages here, so that both paths yield the same bytes.
//
// Guarantee: Load, Expand, BestFit, Candidates and Guess read the definition of tables; no statement of this package touches a row. A Table is safe for concurrent use and
// does not change after Load, except for the offset of the server's default zone and the names of indexes that are gone. The package starts no goroutine.
package table

// Column is the role a column plays, not its name.
type Column int

const (
	ID              Column = iota // primary key
	MessageID                     // unmapped: derived from BizType and Key
	BizType                       //
	Key                           // business key
	Topic                         // or what Mapping.Topic makes one of
	Tag                           //
	ShardingKey                   // unmapped: Key
	Body                          //
	Headers                       // JSON object of strings
	Partition                     //
	StatusCode                    //
	RetryCount                    //
	MaxRetry                      //
	NextRetryTime                 //
	LastExecTime                  // claim stamp, and the last attempt
	FailReason                    //
	CreatedAt                     //
	BrokerMessageID               // written back
	SentAt                        // written back
	LockVersion                   // incremented by every write
	UpdatedBy                     // written with every write
	UpdatedAt                     // written with every write, unless the server does it (ON UPDATE)
	columnCount
)

// Value is one column of one row in the text form the server prints: integers in decimal, DATETIME as
// "2026-01-02 03:04:05.678", strings and blobs as their bytes. TIMESTAMP looks like DATETIME and is in UTC, whatever the
// session's zone, so that both paths show it alike (A21).
type Value struct {
	Data   []byte
	Null   bool
	Absent bool   // not in the row image: unlike NULL, its value is not known
	Fault  string // why the stored bytes are no text (charset.Set.Text); "" when they are. Data then has question marks, as the server shows it
}
