package app

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/doctor"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// A table that needs several changes, no lease table, and an account that lacks rights: after the statements that doctor prints for a client,
// one look finds nothing more.
func TestG45_DoctorIsSilentAfterItsOwnStatements(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "silent", func(f testkit.Flavor, schema string) []string {
				return []string{relayGrants(f, schema)[0], "SELECT ON " + schema + ".*"}
			})
			client := db.Connect(t, "")
			testkit.Exec(t, client, "ALTER TABLE "+cfg.Tables[0].Name+" DROP COLUMN created_at, DROP INDEX idx_sweep, "+
				"MODIFY COLUMN last_exec_time DATETIME NULL COMMENT 'last', MODIFY COLUMN fail_reason VARCHAR(20) NULL COMMENT 'why'")
			bad := func() (out []string) {
				for _, f := range Doctor(t.Context(), cfg) {
					if f.Severity == server.Fault || f.Severity == server.Warning && !expected(db, f) {
						out = append(out, string(f.Severity)+" "+f.Subject+": "+f.What+" | "+f.Fix)
					}
				}
				return out
			}
			if len(bad()) < 5 {
				t.Fatalf("too little is wrong:\n%s", strings.Join(bad(), "\n"))
			}
			statements := doctor.Statements(Doctor(t.Context(), cfg))
			alters := 0
			for _, statement := range statements {
				if strings.HasPrefix(statement, "ALTER TABLE") {
					alters++
				}
				testkit.Exec(t, client, strings.TrimSuffix(statement, ";"))
			}
			if alters != 1 {
				t.Errorf("%d ALTER TABLE statements: %q", alters, statements)
			}
			if left := bad(); len(left) > 0 {
				t.Errorf("after its own statements:\n%s\n\nthe statements:\n%s", strings.Join(left, "\n"), strings.Join(statements, "\n"))
			}
		})
	}
}
