package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// Config says how to reach a server and as whom. It holds a password: never print it whole.
type Config struct {
	Address  string // host:port, or the absolute path of a unix socket
	User     string
	Password string

	TLS         *tls.Config // from TLSConfig; nil for a connection in clear
	TLSOptional bool        // mode preferred: continue without TLS when the server offers none

	DialTimeout time.Duration // 0 means 5 s
	IOTimeout   time.Duration // longest wait for one read or write on the socket, so that a half-open connection ends; 0 means 30 s
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultIOTimeout   = 30 * time.Second
)

// Network returns "unix" for a socket path, else "tcp".
func (c Config) Network() string {
	if strings.HasPrefix(c.Address, "/") {
		return "unix"
	}
	return "tcp"
}

// TLSMode says how much a connection demands of TLS; the names are those of the MySQL clients' --ssl-mode.
type TLSMode string

const (
	TLSDisabled       TLSMode = "disabled"
	TLSPreferred      TLSMode = "preferred"       // encrypted if the server can, no check of the certificate
	TLSRequired       TLSMode = "required"        // encrypted, no check of the certificate
	TLSVerifyCA       TLSMode = "verify-ca"       // encrypted, the certificate leads to the CA
	TLSVerifyIdentity TLSMode = "verify-identity" // and carries the name that was dialled
)

// TLSFiles are paths of PEM files. CA "" means the system's roots; Cert and Key are the client's own, both or none.
type TLSFiles struct{ CA, Cert, Key string }

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
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		host = c.Address
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if err := files.load(cfg); err != nil {
		return err
	}
	// Below verify-identity the library's own check is replaced: it cannot check a chain without a name.
	cfg.InsecureSkipVerify = mode != TLSVerifyIdentity
	if mode == TLSVerifyCA {
		cfg.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, cfg.RootCAs) }
	}
	c.TLS = cfg
	return nil
}

func (f TLSFiles) load(cfg *tls.Config) error {
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return fmt.Errorf("read the CA certificate: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("CA file %s holds no PEM certificate", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("TLS client certificate and key belong together: set both or none")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return fmt.Errorf("load the TLS client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return nil
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
