package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// grants are those of the README.
func grants(flavor testkit.Flavor, schema string) []string {
	replication := "REPLICATION SLAVE, REPLICATION CLIENT ON *.*"
	if flavor == testkit.MariaDB {
		replication = "REPLICATION SLAVE, BINLOG MONITOR ON *.*"
	}
	return []string{replication, "SELECT, UPDATE ON " + schema + ".*"}
}

// secured is a server with a certificate of its own authority, an outbox table and an account that must use TLS.
type secured struct {
	db          *testkit.Database
	table       *relay.Table
	ca, foreign string // files
	accounts    string // suffix of the names of this test's accounts
}

const password = "not-that-of-root"

// authority signs for the servers with TLS, which all tests share.
var authority = sync.OnceValues(testkit.NewCertificates)

// tests counts the tests that share those servers.
var tests atomic.Int64

// certificates returns what an authority has made, and the file of its own certificate.
func certificates(t *testing.T, issue func() (*testkit.Certificates, error)) (all *testkit.Certificates, ca string) {
	t.Helper()
	all, err := issue()
	testkit.Must(t, err)
	dir := t.TempDir()
	testkit.Must(t, all.Write(dir))
	return all, filepath.Join(dir, "ca.pem")
}

func newSecured(t *testing.T, flavor testkit.Flavor) *secured {
	t.Helper()
	own, ca := certificates(t, authority)
	_, foreign := certificates(t, testkit.NewCertificates)
	s := &secured{
		db: testkit.SharedDatabaseAs(t, "TLS", testkit.DatabaseOptions{Flavor: flavor, TLS: own}),
		ca: ca, foreign: foreign, accounts: fmt.Sprint(tests.Add(1)),
	}
	schema := s.db.CreateSchema(t)
	s.table = relay.NewTable(t, s.db.Connect(t, schema), schema, "t_local_message")
	for _, user := range []string{"secure", "clear"} {
		testkit.Must(t, s.db.CreateUser(t.Context(), user+s.accounts, s.password(), grants(flavor, schema)...))
	}
	testkit.Exec(t, s.db.Root(), "ALTER USER 'secure"+s.accounts+"'@'%' REQUIRE SSL")
	return s
}

// password is of the accounts of this test. MariaDB writes passwords into its log as they are in CREATE USER, so a relay that reads the log sees those of
// other tests.
func (s *secured) password() string { return password + "-" + s.accounts + "." }

// yaml returns a configuration that connects to the server as one of the accounts and prints the messages. There are no sweeps,
// so a published row proves that the binlog is read.
func (s *secured) yaml(addr, user, tls string) string {
	return fmt.Sprintf("source: {address: %q, user: %s, password: %q, tls: {%s}}\ntables: [{name: %s, preset: t_local_message}]\nsink: {stdout: {}}\nfallback: {interval: 1h, threshold: 1h}",
		addr, user+s.accounts, s.password(), tls, s.table.FullName())
}

// relays writes a row and waits until it is published and SENT, which uses the reader and the pools.
func (s *secured) relays(t *testing.T, c *child, name string) {
	t.Helper()
	s.insert(t, name)
	s.awaitSent(t, name)
	c.says("order:" + name)
}

// Every mode carries messages; the network bytes are readable in the mode disabled only. An account that must use TLS works in
// every other mode, for the reader and for the pools.
func TestDatabaseTLSModes(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			s := newSecured(t, flavor)
			for _, mode := range []string{"disabled", "preferred", "required", "verify-ca", "verify-identity"} {
				t.Run(mode, func(t *testing.T) {
					wire := newTap(t, "127.0.0.1", s.db.Addr())
					user, tls := "secure", "mode: "+mode
					if strings.HasPrefix(mode, "verify") {
						tls += fmt.Sprintf(", ca: %q", s.ca)
					}
					if mode == "disabled" {
						user = "clear"
					}
					c := newChild(t, s.yaml(wire.Addr(), user, tls))
					c.Start(t)
					s.relays(t, c, mode)
					readable := mode == "disabled"
					if got := wire.saw("body of " + mode); got != readable {
						t.Errorf("the row's body was readable on the network: %v, want %v", got, readable)
					}
					if got := wire.saw("UPDATE "); got != readable {
						t.Errorf("the statements were readable on the network: %v, want %v", got, readable)
					}
					if wire.saw(s.password()) {
						t.Error("the password was readable on the network")
					}
					if code := c.stop(syscall.SIGTERM); code != 0 {
						t.Errorf("exit code %d", code)
					}
				})
			}
		})
	}
}

// An untrusted server, and an account that may not connect unencrypted, are refused at the start, with the reason, by run and by
// doctor.
func TestDatabaseTLSRefusals(t *testing.T) {
	t.Parallel()
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			s := newSecured(t, flavor)
			elsewhere := newTap(t, "127.0.0.2", s.db.Addr())
			for _, c := range []struct{ name, addr, user, tls, says, fix string }{
				{"foreign authority, verify-ca", s.db.Addr(), "secure", fmt.Sprintf("mode: verify-ca, ca: %q", s.foreign), "certificate", "source.tls.ca"},
				{"foreign authority, verify-identity", s.db.Addr(), "secure", fmt.Sprintf("mode: verify-identity, ca: %q", s.foreign), "certificate", "source.tls.ca"},
				{"authority of the system", s.db.Addr(), "secure", "mode: verify-identity", "certificate", "source.tls.ca"},
				{"another host name", elsewhere.Addr(), "secure", fmt.Sprintf("mode: verify-identity, ca: %q", s.ca), "127.0.0.2", "source.address to a name in it"},
				{"account that requires TLS", s.db.Addr(), "secure", "mode: disabled", "Access denied", "source.user"},
			} {
				t.Run(c.name, func(t *testing.T) {
					r := newChild(t, s.yaml(c.addr, c.user, c.tls))
					r.Launch(t)
					r.says(c.says)
					if printed := r.doctorSays(c.says); !strings.Contains(printed, c.fix) {
						t.Errorf("doctor does not say how to fix it (%q):\n%s", c.fix, printed)
					}
					if code := r.wait(); code != 1 {
						t.Errorf("run: exit code %d", code)
					}
				})
			}
			// verify-ca does not check the name, which is its difference from verify-identity.
			r := newChild(t, s.yaml(elsewhere.Addr(), "secure", fmt.Sprintf("mode: verify-ca, ca: %q", s.ca)))
			r.Start(t)
			s.relays(t, r, "elsewhere")
		})
	}
}

// A server without TLS: preferred continues unencrypted, the others refuse.
func TestDatabaseWithoutTLS(t *testing.T) {
	t.Parallel()
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB, Args: []string{"--skip-ssl"}})
	schema := db.CreateSchema(t)
	s := &secured{db: db, table: relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")}
	testkit.Must(t, db.CreateUser(t.Context(), "clear", s.password(), grants(testkit.MariaDB, schema)...))
	r := newChild(t, s.yaml(db.Addr(), "clear", "mode: required"))
	r.Launch(t)
	r.says("TLS")
	r.doctorSays("TLS")
	r.Kill()
	r.configure(s.yaml(db.Addr(), "clear", "mode: preferred"))
	r.Start(t)
	s.relays(t, r, "preferred")
}

// The library requests a stream without checksums, so a damaged bit would count as data. Under TLS it ends the connection, and
// the row arrives unchanged over the next one.
func TestA51_DamageOnTheWireIsNoticedUnderTLS(t *testing.T) {
	t.Parallel()
	s := newSecured(t, testkit.MySQL)
	wire := newTap(t, "127.0.0.1", s.db.Addr())
	r := newChild(t, s.yaml(wire.Addr(), "secure", "mode: required"))
	r.Start(t)
	damaged := 0
	// Where a statement runs just then, its connection gets the damaged piece, and its error does not say so: more rows follow until the stream gets one.
	for ; damaged < 3 || damaged < 100 && !strings.Contains(r.printed(), "bad record MAC"); damaged++ {
		wire.flip(1)
		s.relays(t, r, fmt.Sprintf("damaged-%d", damaged))
		testkit.WaitFor(t, patience, "a piece to be damaged", wire.flipped)
	}
	r.says("bad record MAC")
	for i := range damaged {
		want := fmt.Sprintf("\"body of damaged-%d\"", i)
		if !strings.Contains(r.printed(), want) {
			t.Errorf("%s was not published as it is", want)
		}
	}
	if n := strings.Count(r.printed(), `"message_id":"order:damaged-`); n < damaged {
		t.Errorf("%d messages of %d were printed", n, damaged)
	}
}

// The files for TLS are checked before the first connection.
func TestDatabaseTLSFiles(t *testing.T) {
	s := &secured{table: &relay.Table{Schema: "shop", Preset: "t_local_message"}}
	garbage := filepath.Join(t.TempDir(), "garbage.pem")
	testkit.Must(t, os.WriteFile(garbage, []byte("no certificate"), 0o600))
	for tls, says := range map[string]string{
		"mode: verify-ca, ca: /nowhere/ca.pem":                   "/nowhere/ca.pem",
		"mode: verify-ca, ca: " + garbage:                        "holds no PEM certificate",
		"mode: required, cert: /nowhere/c.pem":                   "cert and key belong together",
		"mode: required, cert: " + garbage + ", key: " + garbage: "client certificate",
		"mode: disabled, ca: /nowhere/ca.pem":                    "has no effect while",
		"mode: perhaps":                                          "perhaps",
	} {
		newChild(t, s.yaml("127.0.0.1:1", "secure", tls)).fails(tls, says)
	}
}
