package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/doctor"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

const (
	relayUser = "relay"
	password  = "canary-c1a5"
)

// relayGrants are what the documentation asks for.
func relayGrants(flavor testkit.Flavor, schema string) []string {
	if flavor == testkit.MariaDB {
		return []string{"REPLICATION SLAVE, BINLOG MONITOR, BINLOG ADMIN ON *.*", "SELECT, UPDATE ON " + schema + ".*"}
	}
	return []string{"REPLICATION SLAVE, REPLICATION CLIENT, SESSION_VARIABLES_ADMIN ON *.*", "SELECT, UPDATE ON " + schema + ".*"}
}

// source makes a schema with one table and an account, and a configuration for them.
func source(t *testing.T, db *testkit.Database, user string, grants func(testkit.Flavor, string) []string) *config.Config {
	t.Helper()
	schema := db.CreateSchema(t)
	ddl, err := migrations.DDL("outbox", schema+".t_local_message")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Exec(t, db.Root(), ddl)
	if err := db.CreateUser(t.Context(), user, password, grants(db.Flavor, schema)...); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("source: {address: '%s', user: %s, password: %s}\ntables: [{name: %s.t_local_message, preset: t_local_message}]\n"+
		"sink: {stdout: {}}\ncheckpoint: {dir: '%s'}\n", db.Addr(), user, password, schema, filepath.Join(t.TempDir(), "s"))
	cfg, _, err := config.Parse("test.yaml", []byte(text), nil, Sinks)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func findings(all []server.Finding) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, fmt.Sprintf("%s %s: %s | %s", f.Severity, f.Subject, f.What, f.Fix))
	}
	return strings.Join(lines, "\n")
}

// has reports whether one finding has the severity and all the words.
func has(all []server.Finding, severity server.Severity, words ...string) bool {
	for _, f := range all {
		text := f.Subject + ": " + f.What + " | " + f.Fix
		fits := f.Severity == severity
		for _, w := range words {
			fits = fits && strings.Contains(text, w)
		}
		if fits {
			return true
		}
	}
	return false
}

// follow runs the statements that a warning advises.
func follow(t *testing.T, db *testkit.Database, all []server.Finding, subject string) {
	t.Helper()
	for _, f := range all {
		if f.Subject != subject || f.Severity != server.Warning {
			continue
		}
		for statement := range strings.SplitSeq(f.Fix, ";\n") {
			testkit.Exec(t, db.Root(), statement)
		}
		return
	}
	t.Fatalf("no warning of %s:\n%s", subject, findings(all))
}

// expected warnings are of what the tests' machine and servers have: relaxed flushing, any disk, and what MySQL 5.7 lacks.
func expected(db *testkit.Database, f server.Finding) bool {
	switch f.Subject {
	case "server.sync_binlog", "disk":
		return true
	case "server.binlog_row_metadata", "server.skip_locked":
		return db.Before(8, 0)
	}
	return false
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "well", relayGrants)
			follow(t, db, Doctor(t.Context(), cfg), "lease")
			all := Doctor(t.Context(), cfg)
			for _, f := range all {
				if f.Severity == server.Fault || f.Severity == server.Warning && !expected(db, f) {
					t.Errorf("%s %s: %s", f.Severity, f.Subject, f.What)
				}
			}
			if !has(all, server.OK, "grants") || !has(all, server.OK, "clock") || !has(all, server.OK, "lease") || !has(all, server.OK, "sink") || !has(all, server.OK, "source.server_id") && !has(all, server.NotChecked, "source.server_id", "needs REPLICATION MASTER ADMIN") {
				t.Errorf("something was not looked at:\n%s", findings(all))
			}
			if _, err := os.Stat(cfg.Checkpoint.Dir); !os.IsNotExist(err) {
				t.Errorf("doctor made the state directory: %v", err)
			}
			if strings.Contains(findings(all), password) {
				t.Error("the password is shown")
			}
		})
	}
}

// An application that writes its local time: the zone that the rows seem to have is named.
func TestDoctorSeesCreatedAtAheadOfTheClock(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "ahead", relayGrants)
			testkit.Exec(t, db.Root(), "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body, created_at) "+
				"VALUES ('o', '1', 't', 'x', NOW(3) + INTERVAL 8 HOUR)")
			if all := Doctor(t.Context(), cfg); !has(all, server.Warning, "created_at", "ahead of the database's clock", "time_zone") {
				t.Errorf("not seen:\n%s", findings(all))
			}
		})
	}
}

func TestDoctorNamesEachMissingRight(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "poor", func(_ testkit.Flavor, schema string) []string { return []string{"SELECT ON " + schema + ".*"} })
			all := Doctor(t.Context(), cfg)
			monitor := map[testkit.Flavor]string{testkit.MySQL: "REPLICATION CLIENT", testkit.MariaDB: "BINLOG MONITOR"}[flavor]
			for _, want := range [][]string{
				{"grants", "may not: ", "GRANT " + monitor + " ON *.*"},
				{"grants", "may not: REPLICATION SLAVE", "GRANT REPLICATION SLAVE ON *.*"},
				{"grants", "t_local_message", "may not: UPDATE on", "GRANT UPDATE ON"}, // it has SELECT
			} {
				if !has(all, server.Fault, want...) {
					t.Errorf("missing fault %q in\n%s", want, findings(all))
				}
			}
			if !has(all, server.Warning, "binlog_row_image", "ADMIN") && !db.Before(8, 0) { // where any account may narrow its session
				t.Errorf("missing warning of the row image in\n%s", findings(all))
			}
		})
	}
}

func TestDoctorWithoutAServer(t *testing.T) {
	address := testkit.FreeAddress(t)
	cfg := config.Default()
	cfg.Source.Address, cfg.Source.User, cfg.Source.Password = address, relayUser, setting.NewSecret(password)
	cfg.Tables = []config.Table{{Name: "a.b", Preset: "t_local_message"}}
	cfg.Sink = config.Use("kafka", &kafka.Section{Brokers: []string{address}, MaxMessageBytes: 1 << 20})
	cfg.Checkpoint.Dir = filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all := Doctor(ctx, &cfg)
	if !has(all, server.Fault, "source", "connection refused", "check source.address") || !has(all, server.Fault, "sink", "does not take messages") {
		t.Errorf("got\n%s", findings(all))
	}
	if strings.Contains(findings(all), password) {
		t.Error("the password is shown")
	}
}

// A09: the directory belongs to another server. A13: the server's own id.
func TestA09_A13_DoctorSeesAForeignStateAndATakenID(t *testing.T) {
	cfg := source(t, testkit.SharedMySQL(t), "foreign", relayGrants)
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := server.ID{Flavor: outbox.MySQL, UUID: "11111111-2222-3333-4444-555555555555", ServerID: 1}
	if err := state.Reset(id, outbox.Position{File: "binlog.000001", Offset: 4, GTIDs: id.UUID + ":1-5"}, 0, "test"); err != nil {
		t.Fatal(err)
	}
	if all := Doctor(t.Context(), cfg); !has(all, server.Warning, "checkpoint.dir", "in use by another") {
		t.Errorf("C01, locked: got\n%s", findings(all))
	}
	if err := state.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Source.ServerID = uint32(testkit.SharedMySQL(t).Port()) // testkit numbers its servers so
	all := Doctor(t.Context(), cfg)
	if !has(all, server.Fault, "source", "not the server of the checkpoint") || !has(all, server.Fault, "source.server_id", "of the server itself") {
		t.Errorf("got\n%s", findings(all))
	}
}

func TestCheckpointSetWithoutADaemon(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			db := testkit.SharedDatabase(t, flavor)
			cfg := source(t, db, "mover", relayGrants)
			ctx := t.Context()
			info, err := server.Inspect(ctx, db.Root())
			if err != nil {
				t.Fatal(err)
			}
			before, err := info.End(ctx, db.Root())
			if err != nil {
				t.Fatal(err)
			}
			testkit.Exec(t, db.Root(), "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body) VALUES ('o', '1', 't', 'x')")
			state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := state.Reset(info.ID, before, 0, "test"); err != nil {
				t.Fatal(err)
			}
			if err := state.Close(); err != nil {
				t.Fatal(err)
			}
			moves(t, cfg, before)
		})
	}
}

// moves goes through the targets, starting at a position that is not the end.
func moves(t *testing.T, cfg *config.Config, before outbox.Position) {
	ctx := t.Context()
	o, err := OpenOffline(t.Context(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := o.SetCheckpoint(ctx, operator.Target{Latest: true, DryRun: true})
	if err != nil || p.Applied || p.To.Compare(before) <= 0 || !strings.Contains(strings.Join(p.Notes, " "), "full sweep") {
		t.Fatalf("dry run: %+v, %v", p, err)
	}
	if cp, err := o.Checkpoint(ctx); err != nil || cp.Position != before {
		t.Fatalf("a dry run moved to %+v (%v)", cp, err)
	}
	if p, err = o.SetCheckpoint(ctx, operator.Target{Latest: true}); err != nil || !p.Applied {
		t.Fatalf("latest: %+v, %v", p, err)
	}
	if gaps, err := o.Gaps(ctx); err != nil || len(gaps) != 1 || gaps[0].Cause != outbox.GapOperator || !gaps[0].Acknowledged {
		t.Errorf("the skipped part: %+v, %v", gaps, err)
	}
	p, err = o.SetCheckpoint(ctx, operator.Target{File: before.File, Pos: before.Offset})
	if err != nil || !p.Applied || !strings.Contains(strings.Join(p.Notes, " "), "read again") {
		t.Errorf("back by file: %+v, %v", p, err)
	}
	if p, err = o.SetCheckpoint(ctx, operator.Target{GTID: before.GTIDs}); err != nil || !p.Applied || p.To.GTIDs != before.GTIDs {
		t.Errorf("by GTID: %+v, %v", p, err)
	}
	if p, err = o.SetCheckpoint(ctx, operator.Target{Earliest: true}); err != nil || !p.Applied || p.To.Offset != 4 {
		t.Errorf("earliest: %+v, %v", p, err)
	}
	refused(t, o, operator.Target{File: "binlog.999999", Pos: 4})
	refused(t, o, operator.Target{GTID: map[bool]string{true: "11111111-2222-3333-4444-555555555555:1-5", false: "7-7-7"}[strings.Contains(before.GTIDs, ":")]})
	entries, err := o.History(ctx, 100)
	if err != nil || len(entries) < 5 {
		t.Fatalf("history: %+v, %v", entries, err)
	}
	oldest := entries[len(entries)-1]
	if p, err = o.SetCheckpoint(ctx, operator.Target{Entry: &oldest.Number}); err != nil || !p.Applied || p.To != oldest.Position {
		t.Errorf("rollback: %+v, %v", p, err)
	}
}

func refused(t *testing.T, o *Offline, target operator.Target) {
	t.Helper()
	_, err := o.SetCheckpoint(t.Context(), target)
	coded, ok := err.(*operator.Error)
	if !ok || coded.Code != operator.CodeRefused {
		t.Errorf("%+v: got %v", target, err)
	}
}

// Two entries of tables[] that name one table, in different spellings on a server that takes them for the same, are refused.
func TestOneTableMappedTwice(t *testing.T) {
	db := testkit.SharedMariaDB(t)
	cfg := source(t, db, "twice", relayGrants)
	cfg.Tables = append(cfg.Tables, cfg.Tables...)
	all, err := mappings(cfg) // the configuration refuses equal spellings before
	testkit.Must(t, err)
	settings, err := serverConfig(cfg.Source)
	testkit.Must(t, err)
	_, found, err := doctor.Inspect(t.Context(), settings, all, true)
	testkit.Must(t, err)
	if !has(found, server.Fault, cfg.Tables[0].Name, "two entries of tables[] name this table") {
		t.Errorf("found:\n%s", findings(found))
	}
}
