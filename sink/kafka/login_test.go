package kafka

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

// openSection opens the sink of a section, which the test closes.
func openSection(t *testing.T, section *Section) *Sink {
	t.Helper()
	opened, err := section.Open(sink.Limits{Messages: 10_000, Bytes: 64 << 20}, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s := opened.(*Sink)
	t.Cleanup(func() { _ = s.Close(t.Context()) }) // its context has ended: it waits for nothing
	return s
}

// issuer signs tokens.
type issuer struct {
	*httptest.Server
	key    *rsa.PrivateKey
	life   time.Duration
	secret atomic.Value // string: the client secret that it takes
	issued atomic.Int64
}

const clientID = "relay+1"

func newIssuer(t *testing.T, life time.Duration) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.Must(t, err)
	i := &issuer{key: key, life: life}
	i.secret.Store("canary one")
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

// keys writes the public key as a JSON Web Key Set (RFC 7517).
func (i *issuer) keys(t *testing.T) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": text(i.key.N.Bytes()), "e": text(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
	testkit.Must(t, err)
	path := filepath.Join(t.TempDir(), "keys.json")
	testkit.Must(t, os.WriteFile(path, set, 0o600))
	return path
}

// token is a JWT (RFC 7519) signed with RS256.
func (i *issuer) token(life time.Duration) string {
	text := base64.RawURLEncoding.EncodeToString
	now := time.Now()
	signed := text([]byte(`{"alg":"RS256","typ":"JWT","kid":"1"}`)) + "." + text(fmt.Appendf(nil,
		`{"iss":"test","sub":"relay","aud":"kafka","scope":"produce","iat":%d,"exp":%d,"jti":"%d"}`, now.Unix(), now.Add(life).Unix(), i.issued.Add(1)))
	hash := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, hash[:])
	if err != nil {
		panic(err)
	}
	return signed + "." + text(signature)
}

// ServeHTTP is a token endpoint (RFC 6749, 4.4).
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != "POST" || r.PostFormValue("grant_type") != "client_credentials" || id != "relay%2B1" || secret != strings.ReplaceAll(i.secret.Load().(string), " ", "+") {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":"invalid_client","error_description":"unknown client"}`)
		return
	}
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d,"scope":%q}`, i.token(i.life), int(i.life.Seconds()), r.PostFormValue("scope"))
}

func (i *issuer) section(addr, secretFile string) *Section {
	s := NewSection()
	s.Brokers = []string{addr}
	s.SASL = Authentication{Mechanism: "oauthbearer", User: clientID, PasswordFile: setting.NewFile(secretFile), TokenEndpoint: setting.URL(i.URL + "/token"), Scope: "produce"}
	s.SASL.Password = s.SASL.PasswordFile.Secret()
	return s
}

// The real broker checks the signature, the audience and the life of tokens, and wants a connection to log in again before its token ends.
func TestOAuthBearerOnKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: make test-rest runs it")
	}
	i := newIssuer(t, 10*time.Second)
	k := testkit.NewKafka(t, testkit.KafkaOptions{Keys: i.keys(t), Config: map[string]string{"connections.max.reauth.ms": "3600000"}})
	makeTopic(t, k.Addr(), "orders", nil)
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o600))
		old := time.Now().Add(-time.Minute)
		testkit.Must(t, os.Chtimes(path, old, old))
		return path
	}
	s := openSection(t, i.section(k.SecureAddr(), file("secret", "canary one\n")))
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
	sent := 5
	testkit.WaitFor(t, patience, "three more tokens", func() bool { // a connection that does not log in again is closed when its token ends
		wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
		sent += 5
		return i.issued.Load() > 3
	})
	// A token from a file; one of another issuer is refused, and the file is named.
	filed := &Section{Brokers: []string{k.SecureAddr()}, SASL: Authentication{Mechanism: "oauthbearer", TokenFile: setting.NewFile(file("token", newIssuer(t, 0).token(time.Hour)))}}
	s = openSection(t, filed)
	if err := s.Probe(t.Context()); err == nil || strings.Contains(err.Error(), "eyJ") {
		t.Errorf("a token of another issuer: %v", err)
	}
	if r := publish(t, s, messages("orders", 1)...)[0]; r.Class != outbox.ClassService || !strings.Contains(r.Reason, "refuses the token") || strings.Contains(r.Reason, "eyJ") {
		t.Errorf("class %s (%s)", r.Class, r.Reason)
	}
	if list := filed.SASL.TokenFile.Troubles(); len(list) == 0 || !strings.Contains(list[0], "is refused by "+k.SecureAddr()) {
		t.Errorf("troubles: %q", list)
	}
	file("token", i.token(time.Hour))
	testkit.WaitFor(t, patience, "the token of the right issuer to be taken", func() bool { return s.Probe(t.Context()) == nil })
	wantClass(t, outbox.ClassNone, publish(t, s, messages("orders", 5)...)...)
	if list := filed.SASL.TokenFile.Troubles(); list != nil {
		t.Errorf("troubles: %q", list)
	}
}
