package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// What Grants says is missing is what its own statement fixes.
func TestGrants(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		schema := d.CreateSchema(t)
		testkit.Exec(t, d.Root(), "CREATE TABLE "+schema+".a (id INT PRIMARY KEY, n INT)")
		name := "grants_" + schema
		testkit.Must(t, d.CreateUser(ctx, name, "secret", "SELECT ON "+schema+".*"))
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP USER '"+name+"'@'%'") })
		cfg := Config{Address: d.Addr(), User: name, Password: setting.NewSecret("secret")}
		probes := []Probe{{Privileges: "SELECT, UPDATE", On: schema + ".a", Statement: "EXPLAIN UPDATE " + schema + ".a SET n = ? WHERE id = 0", Args: []any{1}}}
		info, err := Inspect(ctx, open(t, cfg, nil, Session{}))
		testkit.Must(t, err)
		fixed := 0
		for range 4 {
			db := open(t, cfg, nil, Session{MaxConns: 1}) // privileges are read when a session begins
			findings, err := info.Grants(ctx, db, probes)
			testkit.Must(t, err)
			if !HasFault(findings) {
				break
			}
			for _, f := range findings {
				testkit.Exec(t, d.Root(), f.Fix)
				fixed++
			}
		}
		if fixed != 3 {
			t.Errorf("%d findings, want UPDATE, the monitor and the reader", fixed)
		}
	})
}

// A table that another session has locked does not answer: its privileges are not checked, and no statement waits for it.
func TestGrantsOnALockedTable(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		schema := d.CreateSchema(t)
		var probes []Probe
		for _, name := range []string{schema + ".a", schema + ".b"} {
			testkit.Exec(t, d.Root(), "CREATE TABLE "+name+" (id INT PRIMARY KEY, n INT)")
			probes = append(probes, Probe{Privileges: "SELECT, UPDATE", On: name, Statement: "EXPLAIN UPDATE " + name + " SET n = ? WHERE id = 0", Args: []any{1}})
		}
		holder, err := d.Root().Conn(ctx)
		testkit.Must(t, err)
		defer holder.Close()
		_, err = holder.ExecContext(ctx, "LOCK TABLES "+schema+".a WRITE")
		testkit.Must(t, err)
		db := open(t, root(d), nil, Session{Writes: true})
		info, err := Inspect(ctx, db)
		testkit.Must(t, err)
		findings, err := info.Grants(ctx, db, probes)
		if err != nil || len(findings) != 1 || findings[0].Severity != NotChecked || !strings.Contains(findings[0].What, "has locked "+schema+".a") {
			t.Errorf("%v, %v", findings, err)
		}
		_, err = holder.ExecContext(ctx, "UNLOCK TABLES")
		testkit.Must(t, err)
		if findings, err := info.Grants(ctx, db, probes); err != nil || len(findings) != 1 || findings[0].Severity != OK {
			t.Errorf("unlocked: %v, %v", findings, err)
		}
	})
}

// A server that cannot run the probes for its binlog format has no lack of grants: what Check says of the format must show.
func TestGrantsOnAServerThatLogsStatements(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		d = testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: d.Flavor, Args: []string{"--binlog-format=STATEMENT"}})
		schema := d.CreateSchema(t)
		testkit.Exec(t, d.Root(), "CREATE TABLE "+schema+".a (id INT PRIMARY KEY, n INT)")
		db := open(t, Config{Address: d.Addr(), User: "root"}, nil, Session{Writes: true})
		info, err := Inspect(ctx, db)
		testkit.Must(t, err)
		findings, err := info.Grants(ctx, db, []Probe{{
			Privileges: "SELECT, UPDATE", On: schema + ".a", Statement: "EXPLAIN UPDATE " + schema + ".a SET n = ? WHERE id = 0", Args: []any{1},
		}})
		if err != nil || HasFault(findings) {
			t.Errorf("%v, %v", findings, err)
		}
	})
}

// An account without the right to narrow its session works all the same, and Info shows it.
func TestNarrowSessionIsNotNeeded(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		testkit.Must(t, d.CreateUser(ctx, "plain", "secret"))
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP USER 'plain'@'%'") })
		info, err := Inspect(ctx, open(t, Config{Address: d.Addr(), User: "plain", Password: setting.NewSecret("secret")}, nil, Session{Writes: true}))
		testkit.Must(t, err)
		if (info.SessionImage != "FULL") != d.Before(8, 0) { // where any account may
			t.Errorf("row image %q", info.SessionImage)
		}
	})
}

// A writing pool takes no read-only server, says so, and works again when it is one no more.
func TestReadOnlyServerIsRefusedForWriting(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor})
			testkit.Must(t, d.CreateUser(context.Background(), "app", "", "ALL PRIVILEGES ON *.*"))
			testkit.Exec(t, d.Root(), "CREATE DATABASE s")
			testkit.Exec(t, d.Root(), "CREATE TABLE s.a (id INT PRIMARY KEY)")
			writer, reader := open(t, root(d), nil, Session{Writes: true}), open(t, root(d), nil, Session{})
			testkit.Must(t, writer.Ping())
			lock := "SET GLOBAL super_read_only = 1"
			if flavor == testkit.MariaDB {
				lock = "SET GLOBAL read_only = 1"
				// MariaDB's root may write on; an account without READ ONLY ADMIN may not.
				testkit.Exec(t, d.Root(), "REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM app@'%'")
			}
			connections := 0
			count := func(context.Context, ID) error { connections++; return nil }
			writer = open(t, Config{Address: d.Addr(), User: "app"}, count, Session{Writes: true})
			testkit.Must(t, writer.Ping())
			testkit.Exec(t, d.Root(), lock)
			_, err := writer.Exec("INSERT INTO s.a VALUES (1)")
			if Classify(err) != ReadOnly || !strings.Contains(err.Error(), "read-only") {
				t.Errorf("writing: %v: %v", Classify(err), err)
			}
			if connections < 2 {
				t.Error("the connection to the server that became read-only was kept: the address was not resolved again")
			}
			testkit.Must(t, reader.Ping())
			testkit.Exec(t, d.Root(), "SET GLOBAL read_only = 0")
			_, err = writer.Exec("INSERT INTO s.a VALUES (1)")
			testkit.Must(t, err)
		})
	}
}

// Each TLS mode demands what it says, against a server with a certificate of its own authority and, on MariaDB, against
// one without TLS.
func TestTLSModes(t *testing.T) {
	certificates, err := testkit.NewCertificates()
	testkit.Must(t, err)
	stranger, err := testkit.NewCertificates()
	testkit.Must(t, err)
	dir, other := t.TempDir(), t.TempDir()
	testkit.Must(t, certificates.Write(dir))
	testkit.Must(t, stranger.Write(other))
	ours, theirs := filepath.Join(dir, "ca.pem"), filepath.Join(other, "ca.pem")
	plain := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--skip-ssl"}})
	secured := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, TLS: certificates})
	byName := strings.Replace(secured.Addr(), "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		mode      TLSMode
		address   string // what is dialled
		ca        string
		works     bool
		encrypted bool
	}{
		{TLSDisabled, secured.Addr(), "", true, false},
		{TLSPreferred, secured.Addr(), "", true, true},
		{"", secured.Addr(), "", true, true},
		{TLSRequired, secured.Addr(), "", true, true},
		{TLSVerifyCA, secured.Addr(), ours, true, true},
		{TLSVerifyCA, secured.Addr(), theirs, false, false},
		{TLSVerifyCA, secured.Addr(), "", false, false},
		{TLSVerifyIdentity, secured.Addr(), ours, true, true},
		{TLSVerifyIdentity, byName, ours, true, true},
		{TLSVerifyIdentity, secured.Addr(), theirs, false, false},
		{TLSPreferred, plain.Addr(), "", true, false},
		{TLSRequired, plain.Addr(), "", false, false},
		{TLSVerifyIdentity, plain.Addr(), ours, false, false},
	} {
		cfg := Config{Address: c.address, User: "root", DialTimeout: 5 * time.Second}
		testkit.Must(t, cfg.SetTLS(c.mode, TLSFiles{CA: setting.NewFile(c.ca)}))
		var name, cipher string
		err := open(t, cfg, nil, Session{MaxConns: 1}).QueryRow("SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher)
		if (err == nil) != c.works || (cipher != "") != c.encrypted {
			t.Errorf("%+v: cipher %q, %v", c, cipher, err)
		}
	}
	cfg := Config{Address: "db.example:3306", User: "root"}
	testkit.Must(t, cfg.SetTLS(TLSVerifyIdentity, TLSFiles{CA: setting.NewFile(ours)}))
	cfg.Address = secured.Addr()
	if err := open(t, cfg, nil, Session{}).Ping(); err == nil || !strings.Contains(err.Error(), "db.example") {
		t.Errorf("a certificate for another name: %v", err)
	}
}

func TestTLSFaultsAreNamed(t *testing.T) {
	dir := t.TempDir()
	empty, other := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "other.pem")
	testkit.Must(t, os.WriteFile(empty, nil, 0o600))
	testkit.Must(t, os.WriteFile(other, []byte("no PEM"), 0o600))
	for _, c := range []struct {
		mode  TLSMode
		files TLSFiles
		what  string
	}{
		{"always", TLSFiles{}, `"always" is unknown`},
		{TLSVerifyCA, TLSFiles{CA: setting.NewFile("/nonexistent.pem")}, "read the CA"},
		{TLSVerifyCA, TLSFiles{CA: setting.NewFile(empty)}, "empty.pem is empty"},
		{TLSVerifyCA, TLSFiles{CA: setting.NewFile(other)}, "no PEM certificate"},
		{TLSRequired, TLSFiles{Cert: setting.NewFile(other)}, "belong together"},
		{TLSRequired, TLSFiles{Cert: setting.NewFile(other), Key: setting.NewFile(other)}, "client certificate"},
	} {
		cfg := Config{Address: "127.0.0.1:3306"}
		if err := cfg.SetTLS(c.mode, c.files); err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
