// Package shop is the first service of the chain: it places orders, takes payments and closes orders that are not paid in time.
//
// Placing an order: a script reserves the stock in Redis, then one transaction writes the order and its messages. The stock in
// Redis is fast and may be lost; the table of orders is authoritative.
//
// Guarantees: an order and its messages are stored together or not at all. An order is paid or cancelled, never both. A repeated
// request gets the same answer and reserves once. An order whose reservation was in a Redis that has been lost is not placed.
// What a killed process reserved without placing an order is released (package check). The package owns no goroutine except those
// of Traffic, which has waited for them when it returns.
package shop
