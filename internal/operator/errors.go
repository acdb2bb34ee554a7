package operator

import "fmt"

// Code classifies an Error. It is part of the API and decides the exit code of the commands.
type Code string

const (
	CodeUsage        Code = "usage"        // the request cannot be meant like this
	CodeUnauthorized Code = "unauthorized" // no token, or a wrong one
	CodeForbidden    Code = "forbidden"    // from a page or host that may not
	CodeNotFound     Code = "not_found"    // no such thing
	CodeRefused      Code = "refused"      // possible, but an operator has to decide first
	CodeNeedsScan    Code = "needs_scan"   // possible by reading a whole large table, which the caller did not allow
	CodeFailure      Code = "failure"      // it was tried and went wrong
)

// Error is an error with a code. The message says what to do.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Usagef makes an Error with CodeUsage.
func Usagef(format string, args ...any) *Error {
	return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
}

// Refusedf makes an Error with CodeRefused.
func Refusedf(format string, args ...any) *Error {
	return &Error{Code: CodeRefused, Message: fmt.Sprintf(format, args...)}
}

// NotFoundf makes an Error with CodeNotFound.
func NotFoundf(format string, args ...any) *Error {
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf(format, args...)}
}
