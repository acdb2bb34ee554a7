// Package inbox lets a consumer handle each message once: the relay publishes at least once, so a message can come again, under
// the same message id. A row of the table inbox_message (migrations/) says that a consumer has handled a message. It is written
// in the transaction of the handler's own changes, so there is never one without the other.
//
// For handlers whose changes are not in MySQL or MariaDB there is package inbox/redisinbox.
//
// Guarantee: the changes of one handler call are committed for all copies of a message, however many copies come at the same
// time and whichever process crashes, for as long as the row is kept. The package needs only the standard library and owns no
// goroutine. An Inbox may be used by several goroutines.
package inbox
