// Package testkit starts and stops real servers (MySQL, MariaDB, Redis, Kafka, RocketMQ) for tests, the demo and the
// benchmarks: plain processes on 127.0.0.1 with reserved ports and private directories, no container engine. It also has
// a TCP proxy that breaks connections on command, readers that list what a broker stored, a condition wait and a leak
// check.
//
// Guarantees: a server returned by a Start function has answered a client; it can be killed, stopped, paused and started
// again on the same port with the same data; it dies with the process that started it (on Linux even when that process is
// killed); Close leaves neither process nor directory behind, unless CANAL_OUTBOX_KEEP=1 asks to keep the directories.
// Directories of processes that were killed are removed by the next start.
//
// Every running server owns one goroutine that waits for its process and ends with it. A Proxy owns one goroutine for its
// listener and two for each connection, all ended by Close. Shared servers live until CloseShared (see Main).
package testkit
