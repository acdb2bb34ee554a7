package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// TLSMode says how much a connection demands of TLS; the names are those of the MySQL clients' --ssl-mode.
type TLSMode string

const (
	TLSDisabled       TLSMode = "disabled"
	TLSPreferred      TLSMode = "preferred"       // encrypted if the server can, no check of the certificate
	TLSRequired       TLSMode = "required"        // encrypted, no check of the certificate
	TLSVerifyCA       TLSMode = "verify-ca"       // encrypted, the certificate leads to the CA
	TLSVerifyIdentity TLSMode = "verify-identity" // and carries the name that was dialled
)

// TLSFiles are PEM files. Without a CA the system's roots are trusted; Cert and Key are the client's own, both or none.
type TLSFiles struct{ CA, Cert, Key setting.File }

// TLS makes the settings of each new connection from files that may be replaced.
type TLS struct {
	base  *tls.Config
	mode  TLSMode
	files TLSFiles

	mu        sync.Mutex
	ca        string // the content that roots was made of
	roots     *x509.CertPool
	cert, key string // that pair was made of
	pair      []tls.Certificate
}

// SetTLS reads the files and puts TLS and TLSOptional into the configuration. The address must be set before, because
// verify-identity checks its host.
func (c *Config) SetTLS(mode TLSMode, files TLSFiles) error {
	c.TLS, c.TLSOptional = nil, mode == TLSPreferred || mode == ""
	switch mode {
	case TLSDisabled:
		return nil
	case "", TLSPreferred, TLSRequired, TLSVerifyCA, TLSVerifyIdentity:
	default:
		return fmt.Errorf("TLS mode %q is unknown: use disabled, preferred, required, verify-ca or verify-identity", mode)
	}
	if files.Cert.Set() != files.Key.Set() {
		return errors.New("TLS client certificate and key belong together: set both or none")
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		host = c.Address
	}
	// Below verify-identity the library's own check is replaced: it cannot check a chain without a name.
	t := &TLS{mode: mode, files: files, base: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: mode != TLSVerifyIdentity}}
	for _, f := range []struct {
		what string
		file setting.File
	}{{"the CA certificate", files.CA}, {"the TLS client certificate", files.Cert}, {"the key of the TLS client certificate", files.Key}} {
		if _, err := f.file.Load(); err != nil {
			return fmt.Errorf("read %s: file %s %w", f.what, f.file, err)
		}
	}
	if err := errors.Join(t.readRoots(), t.readPair()); err != nil {
		return err
	}
	c.TLS = t
	return nil
}

// Config returns the settings of one connection. It reads files that have changed; while what is in them cannot be used, the last
// usable content is, and setting.File says so. nil for a nil TLS.
func (t *TLS) Config() *tls.Config {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	note(t.files.CA, t.readRoots())
	note(t.files.Cert, t.readPair())
	c, roots := t.base.Clone(), t.roots
	c.RootCAs, c.Certificates = roots, t.pair
	if t.mode == TLSVerifyCA {
		c.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, roots) }
	}
	return c
}

// unfit is the name under which a file is refused whose content is not what it should be.
const unfit = "the relay"

func note(file setting.File, err error) {
	if err != nil {
		file.Refused(unfit, err)
		return
	}
	file.Accepted(unfit)
}

func (t *TLS) readRoots() error {
	ca := t.files.CA.Get()
	if ca == t.ca {
		return nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return fmt.Errorf("CA file %s holds no PEM certificate", t.files.CA)
	}
	t.ca, t.roots = ca, roots
	return nil
}

// readPair makes the client's own certificate. Its two files are replaced one after the other: between the two they do not fit.
func (t *TLS) readPair() error {
	cert, key := t.files.Cert.Get(), t.files.Key.Get()
	if cert == t.cert && key == t.key {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return fmt.Errorf("load the TLS client certificate: %w", err)
	}
	t.cert, t.key, t.pair = cert, key, []tls.Certificate{pair}
	return nil
}

// PeerRefused reports whether the other side ended a TLS connection by an alert, as it does with a client certificate that it does not accept.
func PeerRefused(err error) bool {
	var alert *net.OpError
	return errors.As(err, &alert) && alert.Op == "remote error"
}

func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server showed no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}
