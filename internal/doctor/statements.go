package doctor

import (
	"slices"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// Statements returns those of all findings, each once and with its semicolon: statements that create and change tables precede
// those that grant rights on them, because a GRANT on a missing table is refused.
func Statements(findings []server.Finding) (all []string) {
	for _, grants := range []bool{false, true} {
		for _, f := range findings {
			for statement := range strings.SplitSeq(strings.TrimSpace(f.SQL), ";\n") {
				statement = strings.TrimSuffix(statement, ";")
				if statement != "" && strings.HasPrefix(statement, "GRANT ") == grants && !slices.Contains(all, statement+";") {
					all = append(all, statement+";")
				}
			}
		}
	}
	return all
}
