package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// An account that must show a certificate logs in with the files of now; a certificate that the server refuses is named.
func TestTheClientCertificateIsReplaced(t *testing.T) {
	certificates, err := testkit.NewCertificates()
	testkit.Must(t, err)
	stranger, err := testkit.NewCertificates()
	testkit.Must(t, err)
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			d := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.Needs(t, flavor, "8.0", "TLS 1.2"), TLS: certificates})
			testkit.Must(t, d.CreateUser(t.Context(), "shows", "secret", "SELECT ON *.*"))
			testkit.Exec(t, d.Root(), "ALTER USER 'shows'@'%' REQUIRE X509")
			dir := t.TempDir()
			put := func(name string, content []byte) setting.File {
				path := filepath.Join(dir, name)
				testkit.Must(t, os.WriteFile(path, content, 0o600))
				before := time.Now().Add(-time.Minute)
				testkit.Must(t, os.Chtimes(path, before, before))
				return setting.NewFile(path)
			}
			cfg := Config{Address: d.Addr(), User: "shows", Password: setting.NewSecret("secret")}
			files := TLSFiles{CA: put("ca", certificates.CA), Cert: put("cert", certificates.Cert), Key: put("key", certificates.Key)}
			testkit.Must(t, cfg.SetTLS(TLSVerifyIdentity, files))
			db := open(t, cfg, nil, Session{MaxConns: 1})
			db.SetMaxIdleConns(0) // each use is a new connection
			testkit.Must(t, db.Ping())
			put("cert", stranger.Cert)
			testkit.Must(t, db.Ping()) // it does not fit its key yet
			if list := files.Cert.Troubles(); len(list) != 1 || !strings.Contains(list[0], "private key does not match") {
				t.Errorf("troubles %q", list)
			}
			put("key", stranger.Key)
			// The server's alert may be lost with the connection that it closes: then the next attempt meets it.
			testkit.WaitFor(t, time.Minute, "the refused certificate to be named", func() bool {
				if err := db.Ping(); err == nil {
					t.Fatal("the server takes a certificate of another authority")
				}
				return strings.Contains(strings.Join(files.Cert.Troubles(), "\n"), "refused by "+d.Addr())
			})
			put("cert", certificates.Cert)
			put("key", certificates.Key)
			testkit.Must(t, db.Ping())
			if list := append(files.Cert.Troubles(), cfg.Password.Troubles()...); list != nil {
				t.Errorf("troubles %q", list)
			}
		})
	}
}
