package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates is a certificate authority of its own and one certificate for 127.0.0.1 and localhost, which a client may show too, valid for a
// day from an hour ago.
type Certificates struct {
	// CA, Cert and Key are PEM blocks: the authority's certificate, the server's certificate and its PKCS #8 key.
	CA, Cert, Key []byte
}

// NewCertificates makes a new authority and server certificate.
func NewCertificates() (*Certificates, error) {
	ca, caKey, err := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "canal-outbox test authority"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	cert, key, err := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca, caKey)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make test certificates: %w", err)
	}
	return &Certificates{
		CA:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, nil
}

// issue makes a key and a certificate for it, signed by parent or, without one, by itself.
func issue(cert, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make test certificates: %w", err)
	}
	if parent == nil {
		parent, parentKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("make test certificates: %w", err)
	}
	parsed, err := x509.ParseCertificate(der)
	return parsed, key, err
}

// Write puts ca.pem, server.pem and server.key into dir, where clients and servers can be pointed at them.
func (c *Certificates) Write(dir string) error {
	for name, data := range map[string][]byte{"ca.pem": c.CA, "server.pem": c.Cert, "server.key": c.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write test certificates: %w", err)
		}
	}
	return nil
}

// Pool returns the authority as a client's set of trusted roots.
func (c *Certificates) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CA)
	return pool
}

func (c *Certificates) databaseArgs(dir string, inside func(string) string) ([]string, error) {
	if err := c.Write(dir); err != nil {
		return nil, err
	}
	dir = inside(dir)
	return []string{"--ssl-ca=" + dir + "/ca.pem", "--ssl-cert=" + dir + "/server.pem", "--ssl-key=" + dir + "/server.key"}, nil
}
