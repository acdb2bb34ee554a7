package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/lease"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// statuses are those of the tables, in the order of the list.
func statuses(all []Migration) (out []string) {
	for _, m := range all {
		out = append(out, m.Status)
	}
	return out
}

// With the relay's own account, which may not create the message table: what is there is left alone, what is missing is made or printed,
// and what is printed can be run twice.
func TestG24_MigrateMakesWhatIsMissing(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "narrow", relayGrants)
			cfg.Retention.Archive, cfg.Retention.Failed = 24*time.Hour, 24*time.Hour
			look := func() []Migration {
				t.Helper()
				all, err := Migrations(t.Context(), cfg)
				testkit.Must(t, err)
				testkit.Must(t, MissingTables(t.Context(), cfg, all))
				return all
			}
			missing := look()
			if got, want := statuses(missing), []string{"exists", "printed", "printed", "printed"}; !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
			all, err := Migrations(t.Context(), cfg)
			testkit.Must(t, err)
			err = Migrate(t.Context(), cfg, all)
			if err == nil || strings.Contains(err.Error(), cfg.Tables[0].Name+":") {
				t.Errorf("it may create no table, and one exists: %v", err)
			}
			for _, m := range all[1:] { // a refused one keeps no other from being tried
				if m.Status != "failed" || !strings.Contains(err.Error(), "create table "+m.Table+":") {
					t.Errorf("%s: %s: %v", m.Table, m.Status, err)
				}
			}
			schema, _, _ := strings.Cut(cfg.Tables[0].Name, ".")
			client := db.Connect(t, "")
			client.SetMaxOpenConns(1) // what a person pastes has one session
			for range 2 {
				for _, m := range missing {
					for statement := range strings.SplitSeq(m.SQL, ";\n") {
						if statement != "" {
							testkit.Exec(t, client, strings.TrimSuffix(statement, ";"))
						}
					}
				}
			}
			if got := statuses(look()); slices.Contains(got, "printed") {
				t.Errorf("after its own statements: %q", got)
			}
			testkit.Must(t, Migrate(t.Context(), cfg, look()))

			leaseTable := missing[3].Table
			testkit.Exec(t, client, "ALTER TABLE "+leaseTable+" DROP COLUMN sent_rows") // as an older release has made it
			older := look()
			if got := older[3]; got.Status != "printed" || !strings.Contains(got.SQL, "ADD COLUMN sent_rows") || strings.Contains(got.SQL, "CREATE TABLE") {
				t.Errorf("an older lease table: %+v", got)
			}
			found, err := lease.CheckColumns(t.Context(), client, leaseTable, server.Finding{})
			testkit.Must(t, err)
			if found.Severity != server.Warning || !strings.Contains(found.SQL, "ADD COLUMN sent_rows") {
				t.Errorf("doctor: %+v", found)
			}
			for range 2 {
				for statement := range strings.SplitSeq(older[3].SQL, ";\n") {
					if statement != "" {
						testkit.Exec(t, client, strings.TrimSuffix(statement, ";"))
					}
				}
			}
			if found, err = lease.CheckColumns(t.Context(), client, leaseTable, server.Finding{}); err != nil || found.SQL != "" {
				t.Errorf("doctor, with the column: %+v, %v", found, err)
			}

			testkit.Exec(t, client, "ALTER TABLE "+schema+".t_local_message_failed DROP COLUMN moved_at") // as if the second statement had not run
			testkit.Exec(t, client, "GRANT CREATE, ALTER ON "+schema+".* TO narrow@'%'")
			again := look()
			testkit.Must(t, Migrate(t.Context(), cfg, again))
			if got, want := statuses(again), []string{"exists", "exists", "applied", "exists"}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// CREATE is enough to make the tables of a new schema without retention.
func TestG24_MigrateWithoutTheRightToAlter(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "maker", func(_ testkit.Flavor, schema string) []string {
				return []string{"SELECT, INSERT, UPDATE, DELETE, CREATE ON " + schema + ".*"}
			})
			testkit.Exec(t, db.Root(), "DROP TABLE "+cfg.Tables[0].Name)
			all, err := Migrations(t.Context(), cfg)
			testkit.Must(t, err)
			testkit.Must(t, Migrate(t.Context(), cfg, all))
			if got, want := statuses(all), []string{"applied", "applied"}; !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			found, err := lease.CheckColumns(t.Context(), db.Connect(t, ""), all[1].Table, server.Finding{})
			if testkit.Must(t, err); found.SQL != "" {
				t.Errorf("the new lease table: %+v", found)
			}
		})
	}
}

// A server that is away leaves the list as it is, so that everything is printed.
func TestG24_MissingTablesWithoutAServer(t *testing.T) {
	cfg := config.Default()
	cfg.Source.Address, cfg.Source.User = "127.0.0.1:1", "relay"
	cfg.Tables = []config.Table{{Name: "shop.t_local_message", Preset: "outbox"}}
	all, err := Migrations(t.Context(), &cfg)
	testkit.Must(t, err)
	if err := MissingTables(t.Context(), &cfg, all); err == nil || !slices.Equal(statuses(all), []string{"printed", "printed"}) {
		t.Errorf("%v, %q", err, statuses(all))
	}
}
