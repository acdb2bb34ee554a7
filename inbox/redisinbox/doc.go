// Package redisinbox lets a consumer handle each message once with a mark in Redis, for handlers whose changes are not in MySQL
// or MariaDB (those take package inbox, which commits mark and changes together).
//
// Guarantee: while a claim or a mark exists, no other handler handles the message. A handler that returns releases its claim or
// turns it into the mark. The claim of a handler that crashed expires after Options.Processing. A message is handled again when
// Redis has lost its mark (eviction, a failover, a mark older than Options.Keep), and when its handler crashed after its change
// and before the mark. A handler must tolerate that. The package owns no goroutine. An Inbox may be used by several goroutines.
package redisinbox
