package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

const (
	tokenLimit = 10 * time.Second // for one request to the endpoint
	tokenPause = time.Second      // between two requests after a failure
	youngToken = time.Minute      // a token that is not replaced when a broker refuses it: another one would be the same
)

// tokens gives the tokens of an endpoint. It fetches the next one when four fifths of a token's life have passed, the share of Kafka's own
// client, and works with the old one as long as that is valid. Its methods may be called from several goroutines.
type tokens struct {
	endpoint  setting.URL
	id, scope string
	secret    setting.Secret
	ca        setting.File
	now       func() time.Time

	mu      sync.Mutex
	token   string
	fetched time.Time
	expires time.Time
	failed  time.Time // when the last request failed
	why     error
}

func newTokens(a *Authentication, ca setting.File) *tokens {
	return &tokens{endpoint: a.TokenEndpoint, id: a.User, scope: a.Scope, secret: a.Password, ca: ca, now: time.Now}
}

// get returns a token that is valid now.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if life := t.expires.Sub(t.fetched); t.token != "" && now.Before(t.fetched.Add(life-life/5)) {
		return t.token, nil
	}
	if t.why == nil || now.Sub(t.failed) >= tokenPause {
		token, expires, err := t.fetch(ctx)
		if err == nil {
			t.token, t.fetched, t.expires, t.why = token, now, expires, nil
			return token, nil
		}
		t.failed, t.why = t.now(), err
	}
	if t.token != "" && now.Before(t.expires) {
		return t.token, nil
	}
	return "", t.why
}

// forget makes the next get fetch a token: a broker has refused this one.
func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Sub(t.fetched) >= youngToken {
		t.token = ""
	}
}

// fetch asks the endpoint. Its errors name the host alone, and quote of an answer only what RFC 6749, 5.2 has for errors.
func (t *tokens) fetch(ctx context.Context) (token string, expires time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, tokenLimit)
	defer cancel()
	address := t.endpoint.Reveal()
	ask := clientcredentials.Config{ClientID: t.id, ClientSecret: t.secret.Get(), TokenURL: address, Scopes: strings.Fields(t.scope)}
	answer, err := ask.Token(context.WithValue(ctx, oauth2.HTTPClient, t.client()))
	by := host(address)
	if err != nil {
		return "", expires, t.fault(by, err)
	}
	t.secret.Accepted(by)
	if kind := answer.TokenType; kind != "" && !strings.EqualFold(kind, "bearer") {
		return "", expires, fmt.Errorf("the token endpoint %s gives tokens of the kind %.40q, and not bearer", by, kind)
	}
	if token, err = usable(answer.AccessToken); err != nil {
		return "", expires, fmt.Errorf("the token endpoint %s: %w", by, err)
	}
	if expires = expiryOf(token); !answer.Expiry.IsZero() {
		expires = t.now().Add(time.Until(answer.Expiry)) // the answer has a duration
	}
	if !expires.IsZero() && !t.now().Before(expires) {
		return "", expires, fmt.Errorf("the token endpoint %s gives a token that has expired at %s: compare the clocks", by, expires.UTC().Format(time.RFC3339))
	}
	return token, expires, nil // of an unknown life: it is used once
}

// client trusts the system's authorities and those of the brokers. A redirect could carry the secret to another host.
func (t *tokens) client() *http.Client {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := t.ca.Get(); ca != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool() // a system without authorities
		}
		roots.AppendCertsFromPEM([]byte(ca))
		settings.RootCAs = roots
	}
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (t *tokens) fault(by string, err error) error {
	var refused *oauth2.RetrieveError
	var whole *url.Error
	switch {
	case errors.As(err, &refused):
		why := cmp.Or(refused.ErrorCode, refused.Response.Status)
		err = fmt.Errorf("the token endpoint %s refuses: %.200q", by, why+strings.TrimRight(" "+refused.ErrorDescription, " "))
		if code := refused.Response.StatusCode; code == http.StatusUnauthorized || code == http.StatusBadRequest || code == http.StatusForbidden {
			t.secret.Refused(by, err)
		}
		return err
	case errors.As(err, &whole):
		return fmt.Errorf("the token endpoint %s does not answer: %w", by, whole.Err)
	}
	return fmt.Errorf("the answer of the token endpoint %s holds no token", by) // the cause may quote it
}

func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// usable refuses what cannot be a token: the login would read other fields out of it.
func usable(token string) (string, error) {
	if token == "" {
		return "", errors.New("there is no token")
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", errors.New("the token has a character that no token has")
		}
	}
	return token, nil
}

// expiryOf is the time in a token that is a JWT (RFC 7519, exp); zero for others.
func expiryOf(token string) (at time.Time) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return at
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp <= 0 || claims.Exp > 1e11 {
		return at
	}
	return time.Unix(int64(claims.Exp), 0)
}
