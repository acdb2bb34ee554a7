// Package redisinbox lets a consumer handle each message once with a mark in Redis, for handlers whose changes are not in MySQL
// or MariaDB (those take package inbox, which commits mark and changes together).
//
// Guarantee: while a claim or a mark is there, nobody else handles the message. A handler that returns gives its claim back or
// turns it into the mark; the claim of one that crashed ends by itself after Options.Processing. What Redis forgets (eviction, a
// failover, a mark that is older than Options.Keep) is handled again, and so is a message whose handler crashed behind its change
// and before the mark: a handler must bear that. The package owns no goroutine; an Inbox may be used from many.
package redisinbox
