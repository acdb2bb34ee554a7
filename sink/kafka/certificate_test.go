package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kfake"
)

// New connections show the certificate that is in the files now. One that the broker refuses is named with its file, and so are two files
// that do not fit each other; until they do the old pair is used.
func TestTheClientCertificateIsReplaced(t *testing.T) {
	own, err := testkit.NewCertificates()
	testkit.Must(t, err)
	old, err := testkit.NewCertificates()
	testkit.Must(t, err)
	fresh, err := testkit.NewCertificates()
	testkit.Must(t, err)
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	testkit.Must(t, err)
	var trusted atomic.Pointer[x509.CertPool]
	trusted.Store(old.Pool())
	f := newFake(t, kfake.SeedTopics(1, "orders"), kfake.TLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted.Load()}, nil
	}}))
	dir := t.TempDir()
	put := func(name string, content []byte) setting.File {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, content, 0o600))
		before := time.Now().Add(-time.Minute)
		testkit.Must(t, os.Chtimes(path, before, before))
		return setting.NewFile(path)
	}
	section := NewSection()
	section.Brokers = []string{f.Addr()}
	section.TLS = setting.TLS{Mode: "verify-identity", CA: put("ca", own.CA), Cert: put("cert", old.Cert), Key: put("key", old.Key)}
	s := openSection(t, section)
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 3)...)...)

	trusted.Store(fresh.Pool())
	f.Stop() // ends the connections
	testkit.Must(t, f.Start())
	var refusal error
	testkit.WaitFor(t, patience, "the certificate to be refused", func() bool {
		refusal = s.Probe(t.Context())
		return len(section.TLS.Cert.Troubles()) > 0
	})
	if list := section.TLS.Cert.Troubles(); !strings.Contains(list[0], filepath.Join(dir, "cert")+") is refused by "+f.Addr()) || !strings.Contains(refusal.Error(), "sink.kafka.tls.cert") {
		t.Errorf("troubles %q; %v", list, refusal)
	}
	put("cert", fresh.Cert)
	testkit.WaitFor(t, patience, "the files not to fit", func() bool {
		_ = s.Probe(t.Context())
		return strings.Contains(strings.Join(section.TLS.Cert.Troubles(), "\n"), "private key does not match")
	})
	put("key", fresh.Key)
	testkit.WaitFor(t, patience, "the new certificate to be accepted", func() bool { return s.Probe(t.Context()) == nil })
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 3)...)...)
	if list := section.TLS.Cert.Troubles(); list != nil {
		t.Errorf("troubles %q", list)
	}
	put("ca", []byte("no PEM")) // what cannot be used changes nothing
	f.Stop()
	testkit.Must(t, f.Start())
	testkit.WaitFor(t, patience, "the old authority to be used", func() bool { return s.Probe(t.Context()) == nil })
	if list := section.TLS.CA.Troubles(); len(list) != 1 || !strings.Contains(list[0], "holds no PEM certificate") {
		t.Errorf("troubles %q", list)
	}
}
