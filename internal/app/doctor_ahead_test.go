package app

import (
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// holding gives a configuration a state with a checkpoint.
func holding(t *testing.T, cfg *config.Config, id server.ID, at outbox.Position) {
	t.Helper()
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Reset(id, at, 0, "test"))
	testkit.Must(t, state.Close())
}

// A checkpoint whose log is gone, or goes soon, is reported before the start that would meet it.
func TestA07_DoctorSeesThatTheLogIsGone(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			cfg := source(t, db, "ahead", relayGrants)
			info, err := server.Inspect(t.Context(), db.Root())
			testkit.Must(t, err)
			at, err := info.End(t.Context(), db.Root())
			testkit.Must(t, err)
			holding(t, cfg, info.ID, at)
			if all := Doctor(t.Context(), cfg); has(all, server.Warning, "checkpoint:") {
				t.Errorf("with the log in place: %s", findings(all))
			}
			testkit.Exec(t, db.Root(), "FLUSH BINARY LOGS")
			if db.Before(8, 0) {
				return // it keeps its logs for a day at least
			}
			testkit.Exec(t, db.Root(), "SET GLOBAL binlog_expire_logs_seconds = 1")
			testkit.WaitFor(t, 30*time.Second, "a checkpoint that is old", func() bool {
				return has(Doctor(t.Context(), cfg), server.Warning, "checkpoint:", "the server purges "+at.File, "start the relay")
			})
			testkit.Exec(t, db.Root(), "SET GLOBAL binlog_expire_logs_seconds = 864000")
			testkit.Exec(t, db.Root(), "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body) VALUES ('o', '1', 't', 'x')")
			testkit.Must(t, db.Purge(t.Context()))
			if all := Doctor(t.Context(), cfg); !has(all, server.Warning, "checkpoint:", "does not reach back", "records a gap") {
				t.Errorf("after a purge: %s", findings(all))
			}
		})
	}
}

// An anonymous account whose host is more exact is used in place of ours. With its rights nothing works, and the statement
// that helps is no GRANT.
func TestDoctorSeesAnAnonymousAccount(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			cfg := source(t, db, "ours", relayGrants)
			testkit.Exec(t, db.Root(), "CREATE USER ''@'127.0.0.1' IDENTIFIED BY '"+password+"'")
			if all := Doctor(t.Context(), cfg); !has(all, server.Fault, "source.user", "anonymous account", "DROP USER ''@'127.0.0.1'") {
				t.Errorf("it has our password: %s", findings(all))
			}
			testkit.Exec(t, db.Root(), "ALTER USER ''@'127.0.0.1' IDENTIFIED BY 'another'")
			all := Doctor(t.Context(), cfg)
			if !has(all, server.Fault, "source:", "Access denied", "an anonymous one", "SELECT user, host") {
				t.Errorf("it has another password: %s", findings(all))
			}
			testkit.Exec(t, db.Root(), "DROP USER ''@'127.0.0.1'")
			if all := Doctor(t.Context(), cfg); has(all, server.Fault) {
				t.Errorf("without it: %s", findings(all))
			}
		})
	}
}

// A relay that works on the table already is a fault: with this one every row is published twice.
func TestDoctorSeesAnotherRelay(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "second", relayGrants)
			other, err := server.NewPresence(server.Config{Address: db.Addr(), User: "second", Password: setting.NewSecret(password)}, []string{cfg.Tables[0].Name}, false)
			testkit.Must(t, err)
			_, err = other.Look(t.Context())
			testkit.Must(t, err)
			if all := Doctor(t.Context(), cfg); !has(all, server.Fault, cfg.Tables[0].Name, "another relay", "127.0.0.1:", "stop one") {
				t.Errorf("got\n%s", findings(all))
			}
			testkit.Must(t, other.Close())
			testkit.WaitFor(t, 30*time.Second, "no other relay", func() bool { return !has(Doctor(t.Context(), cfg), server.Fault) })
		})
	}
}

// What is advised works: for a server without TLS, for a table that is missing, and for one that is hidden. The time zone is
// told whatever is missing.
func TestDoctorAdvisesWhatWorks(t *testing.T) {
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--skip-ssl"}})
	cfg := source(t, db, "advised", relayGrants)
	cfg.Source.TLS.Mode = "required"
	if all := Doctor(t.Context(), cfg); !has(all, server.Fault, "source:", "TLS", "ssl_cert", "source.tls.mode to preferred") {
		t.Errorf("a server without TLS: %s", findings(all))
	}
	cfg.Source.TLS.Mode = "preferred"
	table := cfg.Tables[0].Name
	cfg.Tables[0].Columns = map[string]string{"tag": "nothing_of_the_kind"}
	all := Doctor(t.Context(), cfg)
	if !has(all, server.Fault, "nothing_of_the_kind", "no such column") || !has(all, server.OK, table, "time zone") {
		t.Errorf("a missing column: %s", findings(all))
	}
	cfg.Tables[0].Columns = nil
	schema, _, _ := strings.Cut(table, ".")
	cfg.Tables[0].Name = schema + ".absent"
	all = Doctor(t.Context(), cfg)
	if !has(all, server.Fault, ".absent: there is no such table |", "canal-outbox migrate (", "--preset t_local_message --table "+schema+".absent --print") || has(all, server.Fault, "GRANT") {
		t.Errorf("a missing table: %s", findings(all))
	}
	cfg.Tables[0].Name = "mysql.hidden"
	if all = Doctor(t.Context(), cfg); !has(all, server.Fault, "mysql.hidden", "may not see it", "GRANT SELECT, UPDATE ON `mysql`.`hidden` TO 'advised'@'%'") {
		t.Errorf("a hidden table: %s", findings(all))
	}
}

// An application that writes the time of another zone makes rows in the future.
func TestDoctorSeesRowsMadeInTheFuture(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "zones", relayGrants)
			insert := "INSERT INTO " + cfg.Tables[0].Name + " (biz_type, biz_key, topic, message_body, created_at) VALUES ('o', ?, 't', 'x', NOW() + INTERVAL ? HOUR)"
			testkit.Exec(t, db.Root(), insert, "now", 0)
			if all := Doctor(t.Context(), cfg); has(all, server.Warning, "created_at") {
				t.Errorf("a row of now: %s", findings(all))
			}
			testkit.Exec(t, db.Root(), insert, "ahead", 8)
			if all := Doctor(t.Context(), cfg); !has(all, server.Warning, cfg.Tables[0].Name+".created_at:", "ahead of the database's clock", "time_zone") {
				t.Errorf("a row of the future: %s", findings(all))
			}
		})
	}
}
