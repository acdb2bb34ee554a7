package kafka

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanisms log in with a password. The library asks for it for each connection, and when a broker wants a connection to log in again.
var mechanisms = map[string]func(user string, password func() string) sasl.Mechanism{
	"plain": func(user string, password func() string) sasl.Mechanism {
		return plain.Plain(func(context.Context) (plain.Auth, error) { return plain.Auth{User: user, Pass: password()}, nil })
	},
	"scram-sha-256": func(user string, password func() string) sasl.Mechanism {
		return scram.Sha256(func(context.Context) (scram.Auth, error) { return scram.Auth{User: user, Pass: password()}, nil })
	},
	"scram-sha-512": func(user string, password func() string) sasl.Mechanism {
		return scram.Sha512(func(context.Context) (scram.Auth, error) { return scram.Auth{User: user, Pass: password()}, nil })
	},
}

// logins records which secret a broker refuses.
type logins struct {
	secret setting.Secret // of SASL
	cert   setting.File   // the client's certificate
}

var _ kgo.HookBrokerConnect = logins{}

// OnBrokerConnect implements kgo.HookBrokerConnect. The library calls it when a connection has logged in, or could not.
func (l logins) OnBrokerConnect(b kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	by := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	switch {
	case err == nil:
		l.secret.Accepted(by)
		l.cert.Accepted(by)
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		l.secret.Refused(by, err)
	case server.PeerRefused(err):
		l.cert.Refused(by, err)
	}
}
