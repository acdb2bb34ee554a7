// Package keyorder keeps the order of keys for tables with `ordering: key`. A key is one of a table and a topic.
//
// Guarantee: a row goes to the sink when every earlier row of its key that is known is final, and one row of a key is at the sink at a time.
// Nothing of a table goes before its unfinished rows were read. The number of rows that are remembered is bounded.
//
// Order is a state machine. It has no lock, no clock, no context and no I/O, and owns no goroutine. The caller serialises the calls, passes the
// time, and does what is decided. Rows in memory are entries of the tracker; Order uses their Message, Size, Sends and origin, and asks
// Owners, which only reads, whether an entry still owns its row.
//
//	event                                                      decision
//	Come: a row is to go to the sink                           Send, Hold (behind the row of its key that is at the sink), Leave (to the sweep)
//	Again: a row is to go to the sink once more                whether it may
//	Sent: the broker has a row                                 the row that follows it, or the rows that are left with it
//	Unsent: a row left the sink and was not sent               the rows behind it, which are left to the sweep
//	Probe: a row of a part that is away stays in memory        the same
//	Skip, Expect, Final: a row was left, is looked up, is final
//	Deferred, Unread, Ahead: rows that are not known may exist
//	Reserved: a sweep has reserved rows                        which of them go, and which stay
//	SetBack: rows that were FAILED are PENDING                 none: they wait, and later rows of their keys behind them
//	ToLook, Looked: what the table says of first rows          which rows to look at, which to publish, whether a sweep is needed
//	Reading: a reading of a table, page by page                whether to read, whether to read on, whether to read again
//	Wakes                                                      whether looking or reading is due earlier than the caller expects
//
// A key with a row in memory or with rows that are left has a keyState; another key has none. The table decides when a row is final, not the
// completion: so a row that is deleted, held or marked by hand ends the wait like one that was sent.
package keyorder
