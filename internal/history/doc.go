// Package history keeps what the status showed in the last day: one small sample every ten seconds, and marks for what
// happened. So the page says what it was like an hour ago without any other service.
//
// Guarantee: memory is bounded whatever happens, nothing here can hold the relay up, and what was not measured is shown as
// not known. The past is kept in the state directory and survives a restart. After a take-over the new active relay has its own past only: what it
// measured while it was active before. Recorder.Run works in its caller's goroutine; the package
// starts none.
package history
