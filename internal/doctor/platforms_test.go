package doctor

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var update = flag.Bool("update", false, "write the golden files of the platforms")

// What doctor says on each platform, to a fake server that answers as the platform does: the statements about the server, exactly. No
// table is mapped: the statements on tables are the same everywhere, and real servers answer them in other tests.
func TestA58_DoctorOnManagedServers(t *testing.T) {
	const id = "a08bb40d-3d64-11f0-bc32-12ea7e1126d9"
	mysql80 := []string{"common.txt", "mysql80.txt"}
	for _, c := range []struct {
		name   string
		shared []string
		file   string        // of the checkpoint; "" without one
		age    time.Duration // of the checkpoint
	}{
		{"rds-mysql-8.0", mysql80, "mysql-bin-changelog.000011", 20 * time.Hour},
		{"rds-mysql-5.7", []string{"common.txt"}, "", 0},
		{"rds-mariadb", []string{"common.txt"}, "", 0},
		{"aurora-binlog-off", mysql80, "", 0},
		{"aurora-reader", mysql80, "mysql-bin-changelog.000011", time.Hour},
		{"aliyun-rds", mysql80, "mysql-bin.000011", time.Hour},
		{"polardb", mysql80, "", 0},
		{"cloud-sql", mysql80, "", 0},
		{"azure", mysql80, "mysql-bin.000011", 2 * time.Hour},
		{"tidb", []string{"common.txt"}, "", 0},
		{"oceanbase", []string{"common.txt"}, "", 0},
		{"plain", mysql80, "mysql-bin.000007", 30 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var held State
			if c.file != "" {
				held = State{
					Source:     server.ID{Flavor: outbox.MySQL, UUID: id, ServerID: 1806218587},
					Checkpoint: outbox.Position{File: c.file, Offset: 4711}, At: time.Now().Add(-c.age),
				}
			}
			got := onPlatform(t, startFake(t, readScript(t, append(c.shared, c.name+".txt")...)).address, held)
			golden := filepath.Join("testdata", "platforms", c.name+".golden")
			if *update {
				testkit.Must(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			testkit.Must(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s\ngo test -update writes the file", got, want)
			}
		})
	}
}

// A connection that reached a reader of Aurora, which is the old writer for some seconds after a failover, is not used again: the next one
// resolves the cluster endpoint again.
func TestAReaderOfAuroraIsLeft(t *testing.T) {
	fake := startFake(t, readScript(t, "common.txt", "mysql80.txt", "aurora-reader.txt"))
	settings := server.Config{Address: fake.address, User: fakeUser, Password: setting.NewSecret(fakePassword)}
	db, err := server.Open(settings, nil, server.Session{MaxConns: 1})
	testkit.Must(t, err)
	defer db.Close()
	for range 2 {
		info, err := server.Inspect(t.Context(), db)
		testkit.Must(t, err)
		if _, err := info.End(t.Context(), db); err == nil || !strings.Contains(err.Error(), "cluster endpoint") {
			t.Errorf("the end of its log: %v", err)
		}
	}
	writing, err := server.Open(settings, nil, server.Session{Writes: true})
	testkit.Must(t, err)
	defer writing.Close()
	if err := writing.Ping(); server.Classify(err) != server.ReadOnly || !strings.Contains(err.Error(), "cluster endpoint") {
		t.Errorf("writing: %v", err)
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	if fake.conns != 3 {
		t.Errorf("%d connections for two looks and a writing pool", fake.conns)
	}
}

var measured = regexp.MustCompile(`the server's differs by \S+`)

// onPlatform runs doctor against a server, and writes what it found without what differs from run to run.
func onPlatform(t *testing.T, address string, held State) string {
	cfg := config.Default()
	cfg.Source.Address, cfg.Source.User = "db.example.com:3306", fakeUser
	cfg.Admin.Listen, cfg.Checkpoint.Dir = "", t.TempDir()
	all := Check(t.Context(), Parts{
		Config: &cfg, ServerID: 4711,
		Server: func() (server.Config, error) {
			return server.Config{Address: address, User: fakeUser, Password: setting.NewSecret(fakePassword)}, nil
		},
		Lease: func(context.Context, *sql.DB, string) (server.Finding, error) {
			return server.Finding{}, errors.New("without tables it is not asked")
		},
		Running: func(context.Context) (outbox.Position, error) { return outbox.Position{}, errors.New("none") },
		State:   func() (State, error) { return held, nil },
		Free:    func(string) (uint64, error) { return 1 << 40, nil },
		Broker:  func(context.Context, []string, map[string]int64) []server.Finding { return nil },
	})
	var out strings.Builder
	for _, f := range all {
		if f.Subject == "disk" || f.Subject == "checkpoint.dir" {
			continue // of the machine
		}
		fmt.Fprintf(&out, "%s %s: %s\n", strings.ToUpper(string(f.Severity)), f.Subject, f.What)
		if f.Fix != "" {
			fmt.Fprintf(&out, "  fix: %s\n", strings.ReplaceAll(f.Fix, "\n", "\n       "))
		}
	}
	for _, statement := range Statements(all) {
		fmt.Fprintln(&out, statement)
	}
	text := strings.ReplaceAll(out.String(), address, "ADDRESS")
	if strings.Contains(text, fakePassword) {
		t.Error("the password is shown")
	}
	return measured.ReplaceAllString(text, "the server's differs by TIME")
}

// The cures of a connection that fails in the way of a service.
func TestConnectFixOfAService(t *testing.T) {
	mismatch := x509.HostnameError{Certificate: &x509.Certificate{Issuer: pkix.Name{CommonName: "Google Cloud SQL Server CA"}}, Host: "10.0.0.3"}
	own := x509.HostnameError{Certificate: &x509.Certificate{Issuer: pkix.Name{CommonName: "Our CA"}}, Host: "10.0.0.3"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("connect: %w", mismatch), "source.tls.mode to verify-ca"},
		{fmt.Errorf("connect: %w", own), "source.address to a name in it"},
		{&mysql.MySQLError{Number: 3159, Message: "Connections using insecure transport are prohibited while --require_secure_transport=ON."}, "source.tls.mode to verify-identity"},
		{&server.NoBinlogError{Platform: server.TiDB, Version: "8.0.11-TiDB-v7.5.1"}, "TiCDC"},
	} {
		if got := ConnectFix(c.err, "relay"); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
