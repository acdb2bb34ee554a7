// Package shop is the service at the head of the chain: it places orders, takes payments and closes what is not paid in time.
//
// Placing an order: a script reserves the stock in Redis, then one transaction writes the order and its messages. The stock in
// Redis is fast and may be lost; the table of orders is the truth.
//
// Guarantees: an order and its messages are there together or not at all. An order is paid or cancelled, never both. A repeated
// request answers the same and reserves once. An order whose reservation was made in a Redis that has been lost since is not
// placed. What a killed process reserved without placing an order comes back (package check).
// The package owns no goroutine but those of Traffic, which has waited for them when it returns.
package shop
