package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink/kafka/awskeys"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
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

const (
	oauthbearer = "oauthbearer"
	awsMSKIAM   = "aws-msk-iam"
)

// validate reports everything that is wrong with the section.
func (a *Authentication) validate(r setting.Report) {
	if a.Mechanism == "" {
		if a.User != "" || a.Password.Set() || a.TokenFile.Set() || a.TokenEndpoint != "" {
			r.Add("mechanism", "", "is missing: write plain, scram-sha-256, scram-sha-512, oauthbearer or aws-msk-iam")
		}
		return
	}
	r.OneOf("mechanism", a.Mechanism, "plain", "scram-sha-256", "scram-sha-512", oauthbearer, awsMSKIAM)
	account := a.Mechanism != awsMSKIAM && (a.Mechanism != oauthbearer || a.TokenEndpoint != "")
	if account {
		r.Required("user", a.User)
		if !a.Password.Set() {
			r.Add("password", "", "is missing: set it, or password_file")
		}
	} else if a.User != "" || a.Password.Set() {
		r.Add("user", a.User, "and password have no effect with %s, unless token_endpoint is set: remove them", a.Mechanism)
	}
	if a.Mechanism != oauthbearer {
		if a.TokenFile.Set() || a.TokenEndpoint != "" || a.Scope != "" || len(a.Extensions) > 0 {
			r.Add("", "", "token_file, token_endpoint, scope and extensions belong to the mechanism oauthbearer")
		}
		return
	}
	if a.TokenFile.Set() == (a.TokenEndpoint != "") {
		r.Add("", "", "oauthbearer needs either token_file or token_endpoint")
	}
	if a.TokenFile.Set() && a.Scope != "" {
		r.Add("scope", a.Scope, "has no effect without token_endpoint")
	}
	if a.TokenEndpoint != "" && !safe(a.TokenEndpoint) {
		r.Add("token_endpoint", a.TokenEndpoint.String(), "is no https address; http is possible on this machine alone, because the client secret is sent there")
	}
}

// safe reports whether a secret may be sent to an address.
func safe(address setting.URL) bool {
	u, err := url.Parse(address.Reveal())
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// mechanism returns how to log in, nil without a mechanism; the secret that a broker may refuse; and what to do then, nil for nothing.
func (a *Authentication) mechanism(ca setting.File) (sasl.Mechanism, setting.Secret, func()) {
	switch a.Mechanism {
	case oauthbearer:
		if a.TokenFile.Set() {
			return a.oauth(func(context.Context) (string, error) { return usable(a.TokenFile.Get()) }), a.TokenFile.Secret(), nil
		}
		t := newTokens(a, ca)
		return a.oauth(t.get), a.Password, t.forget
	case awsMSKIAM:
		keys := awskeys.New()
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
			k, err := keys.Get(ctx)
			if err != nil {
				return aws.Auth{}, &loginError{err}
			}
			return aws.Auth{AccessKey: k.AccessKey, SecretKey: k.SecretKey, SessionToken: k.SessionToken, UserAgent: "canal-outbox"}, nil
		}), setting.Secret{}, keys.Forget
	case "":
		return nil, setting.Secret{}, nil
	}
	return mechanisms[a.Mechanism](a.User, a.Password.Get), a.Password, nil
}

func (a *Authentication) oauth(token func(context.Context) (string, error)) sasl.Mechanism {
	return bearer{oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		text, err := token(ctx)
		if err != nil {
			return oauth.Auth{}, &loginError{err}
		}
		return oauth.Auth{Token: text, Extensions: a.Extensions}, nil
	})}
}

// bearer makes a refused token an error that says so. Brokers refuse by a challenge (RFC 7628, 3.2.2), of which the library says only that it
// does not expect one.
type bearer struct{ sasl.Mechanism }

// Authenticate implements sasl.Mechanism.
func (b bearer) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	session, first, err := b.Mechanism.Authenticate(ctx, host)
	return bearerSession{session}, first, err
}

type bearerSession struct{ sasl.Session }

// Challenge implements sasl.Session.
func (s bearerSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, nil, fmt.Errorf("%w: the broker refuses the token: %.100q", kerr.SaslAuthenticationFailed, answer)
	}
	return s.Session.Challenge(answer)
}

// loginError reports that there is nothing to log in with: no broker was asked.
type loginError struct{ error }

// Unwrap returns the cause.
func (e *loginError) Unwrap() error { return e.error }

// logins records which secret a broker refuses.
type logins struct {
	secret  setting.Secret // of SASL
	cert    setting.File   // the client's certificate
	refused func()         // forgets what was made of the secret; nil: nothing was
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
		if l.refused != nil {
			l.refused()
		}
	case server.PeerRefused(err):
		l.cert.Refused(by, err)
	}
}
