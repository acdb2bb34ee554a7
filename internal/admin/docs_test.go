package admin

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// The page on the API lists each route with the role that the table has, and each code with its status.
func TestPageListsEveryRoute(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	must(t, err)
	has := func(of, answer string) {
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "|") && strings.Contains(line, "`"+of+"`") && strings.Contains(line, "| "+answer+" |") {
				return
			}
		}
		t.Errorf("docs/api.md does not say that %s is %s", of, answer)
	}
	all := newAPI(&fake{}, prometheus.NewRegistry(), zap.NewNop()).table()
	for i := range all {
		has(all[i].method+" "+strings.TrimSuffix(all[i].path, "{$}"), all[i].needs.String())
	}
	for _, code := range []operator.Code{operator.CodeUsage, operator.CodeUnauthorized, operator.CodeForbidden, operator.CodeNotFound, operator.CodeRefused, operator.CodeNeedsScan, operator.CodeFailure} {
		has(string(code), strconv.Itoa(httpStatus(code)))
	}
}
