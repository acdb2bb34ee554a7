package admin

import (
	"net/http"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// httpStatus is the status of an answer with a code.
func httpStatus(c operator.Code) int {
	switch c {
	case operator.CodeUsage:
		return http.StatusBadRequest
	case operator.CodeUnauthorized:
		return http.StatusUnauthorized
	case operator.CodeForbidden:
		return http.StatusForbidden
	case operator.CodeNotFound:
		return http.StatusNotFound
	case operator.CodeRefused, operator.CodeNeedsScan:
		return http.StatusConflict
	}
	return http.StatusInternalServerError
}
