// Package admin lets people and machines observe and control a running process: an HTTP server (metrics, health, JSON API,
// dashboard) and the same API on a unix socket, with the client that the commands use.
//
// Guarantee: a client on another machine that has no token can read only whether the service is up or paused. With the token it
// reads no body and changes nothing. A web page from another origin cannot use a browser on this machine to change or to read
// anything. The file mode 0600 protects the socket.
//
// One table of routes makes the server, the role that each route needs, and the OpenAPI document.
//
// A Server owns one goroutine for each listener and net/http's for each connection; Run ends them all. The client owns none.
package admin
