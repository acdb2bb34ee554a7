// Package story starts the order chain with its servers, plain processes on 127.0.0.1, causes faults and makes the account.
//
// Guarantee: Run returns nil only when the account is right: every order has its messages, every message its effects, no order is
// both paid and cancelled, and the stock of the orders, of the stock consumer and of Redis is the same. However Run ends, the
// processes and directories that it created are removed. Run owns the goroutines that wait for its processes and the listener for
// the relay's alerts, and has ended them when it returns.
package story
