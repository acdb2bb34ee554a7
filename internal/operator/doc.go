// Package operator is what an operator can do and see, as types and as a service: checkpoint moves with their preview, gaps, messages,
// and the status with its problems. The API, the commands and the page use the same types, with a running relay and without one.
//
// Guarantee: nothing is moved that was not previewed by the same rules, a part of the log that is skipped leaves a gap
// record, and nothing is called a problem that the status does not show. It gets what it looks at and depends on no part of the relay.
//
// Sampler.Run works in its caller's goroutine; the package starts none.
package operator
