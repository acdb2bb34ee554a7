package server

import (
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Config says how to reach a server, and with which account. Copies share what becomes of the password and the files.
type Config struct {
	Address  string // host:port, or the absolute path of a unix socket
	User     string
	Password setting.Secret // asked for each connection

	TLS         *TLS // from SetTLS; nil for a connection in clear
	TLSOptional bool // mode preferred: continue without TLS when the server offers none

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

// LoggedIn records the end of an attempt to log in: nil, or its error with the number of the server's answer, 0 when there is none. Status
// shows a password or client certificate that is refused.
func (c Config) LoggedIn(err error, code uint16) {
	cert := setting.File{}
	if c.TLS != nil {
		cert = c.TLS.files.Cert
	}
	switch {
	case err == nil:
		c.Password.Accepted(c.Address)
		cert.Accepted(c.Address)
	case refused(code):
		c.Password.Refused(c.Address, err)
	case PeerRefused(err):
		cert.Refused(c.Address, err)
	}
}
