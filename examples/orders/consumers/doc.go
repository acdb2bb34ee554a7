// Package consumers has the consumers of the order chain: stock, points, coupon and notification, the closing of unpaid orders,
// and the letters that none of them could handle. Each is a separate process with one runner.
//
// Guarantees: the effect of a message exists once, however often the message comes. The stock's inbox is a row in the same
// transaction; for points and coupon the order's number is also the key, and the inbox in Redis only saves the work. A
// notification cannot be undone and has no key: it is sent again when Redis has lost its inbox, or when the process died between
// the notification and its mark. A message that is itself the cause of an error, such as a number that is too long for a column,
// is tried three times and then goes to the dead-letter topic. When something is away (the database, Redis, the broker), the
// message waits, and the log names it. The package owns no goroutine.
package consumers
