// Package admin is how people and machines look at a running daemon and tell it what to do: an HTTP server (metrics,
// health, JSON API, dashboard) and the same API on a unix socket, with the client that the commands use.
//
// Guarantee: whoever can send a request to the HTTP address but is neither on this machine nor has the token reads no more
// than whether the service is up or paused, and with the token to read no body and changes nothing; a web page from elsewhere cannot use a browser on this machine to act or to read. The
// socket is guarded by its file mode, 0600.
//
// One table of routes makes the server, the role that each route needs, and the OpenAPI document.
//
// A Server owns one goroutine for each listener and net/http's for each connection; Run ends them all. The client owns none.
package admin
