// Package consumers is what follows an order: stock, points, coupon and notification, the closing of unpaid orders, and the
// letters that none of them could handle. Each is a process of its own with one runner.
//
// Guarantees: the effect of a message is there once, however often the message comes: the stock's because its inbox is a row in
// the same transaction, those of points and coupon because the order's number is their key too; the inbox in Redis before them
// saves the work. A notification cannot be taken back and has no key: it goes out again when Redis has lost its inbox, or when
// the process died between the notification and its mark. A message whose error is its own, such as a
// number that is too long for a column, is tried three times and then goes to the dead-letter topic. When something is away (the database, Redis,
// the broker), the message waits, and the log says for what.
// The package owns no goroutine.
package consumers
