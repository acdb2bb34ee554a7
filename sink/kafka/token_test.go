package kafka

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func writeOld(t *testing.T, path, content string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path, []byte(content), 0o600))
	old := time.Now().Add(-time.Minute)
	testkit.Must(t, os.Chtimes(path, old, old))
}

// A token is used for four fifths of its life; the old one stays while the endpoint is away; a changed secret is read again.
func TestTokensAreRenewed(t *testing.T) {
	i := newIssuer(t, 100*time.Second)
	path := filepath.Join(t.TempDir(), "secret")
	writeOld(t, path, "canary one\n")
	section := i.section("", path)
	tokens, now := newTokens(&section.SASL, setting.File{}), time.Now()
	tokens.now = func() time.Time { return now }
	get := func(want int64) string {
		t.Helper()
		token, err := tokens.get(t.Context())
		if err != nil || i.issued.Load() != want {
			t.Fatalf("%v, %d tokens were issued, want %d", err, i.issued.Load(), want)
		}
		return token
	}
	first := get(1)
	now = now.Add(79 * time.Second)
	get(1)
	now = now.Add(2 * time.Second)
	second := get(2)
	i.secret.Store("canary two") // changed at the endpoint before it is in the file
	now = now.Add(81 * time.Second)
	if get(2) != second || first == second {
		t.Error("the old token is not used while it is valid")
	}
	if list := section.SASL.Password.Troubles(); len(list) != 1 || !strings.Contains(list[0], path) || !strings.Contains(list[0], "invalid_client") || strings.Contains(list[0], "canary") {
		t.Errorf("troubles: %q", list)
	}
	now = now.Add(30 * time.Second)
	if token, err := tokens.get(t.Context()); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("an expired token: %.10s, %v", token, err)
	}
	writeOld(t, path, "canary two")
	now = now.Add(2 * tokenPause)
	get(3)
	if list := section.SASL.Password.Troubles(); list != nil {
		t.Errorf("troubles: %q", list)
	}
	tokens.forget() // too young
	get(3)
	now = now.Add(70 * time.Second)
	tokens.forget()
	get(4)
}

// An endpoint that is away, slow, or says what is not so: an error that names it, and quotes nothing.
func TestBadTokenEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		says   string
	}{
		"no JSON":          {200, "<html>canary</html>", "holds no token"},
		"empty":            {200, "", "holds no token"},
		"no token":         {200, `{"token_type":"bearer","expires_in":60}`, "holds no token"},
		"another kind":     {200, `{"access_token":"canary","token_type":"mac","expires_in":60}`, `"mac"`},
		"expired":          {200, `{"access_token":"canary","expires_in":-60}`, "has expired"},
		"two lines":        {200, `{"access_token":"canary\u0001auth=x","expires_in":60}`, "a character that no token has"},
		"error with 200":   {200, `{"error":"slow_down"}`, "slow_down"},
		"error":            {503, `canary`, "503"},
		"much":             {200, strings.Repeat("canary", 1<<18), "holds no token"},
		"another endpoint": {307, "", "307"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer server.Close()
			tokens := newTokens(&Authentication{TokenEndpoint: setting.URL(server.URL + "/path-canary"), User: "u", Password: setting.NewSecret("canary-secret")}, setting.File{})
			token, err := tokens.get(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), strings.TrimPrefix(server.URL, "http://")) {
				t.Errorf("%q, %v", token, err)
			}
		})
	}
	ask := func(address string) error {
		_, err := newTokens(&Authentication{TokenEndpoint: setting.URL(address), User: "u", Password: setting.NewSecret("canary")}, setting.File{}).get(t.Context())
		return err
	}
	if err := ask("http://127.0.0.1:1/canary"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1 does not answer") || strings.Contains(err.Error(), "canary") {
		t.Errorf("away: %v", err)
	}
}

func TestTokensOfUnknownLife(t *testing.T) {
	i := newIssuer(t, 0)
	for token, known := range map[string]bool{i.token(time.Hour): true, "opaque": false, "a.b.c": false, "a.e30.c": false} {
		if got := expiryOf(token); !got.IsZero() != known || known && time.Until(got) > time.Hour+time.Minute {
			t.Errorf("%.10s: %v", token, got)
		}
	}
}

func TestLoginsAreChecked(t *testing.T) {
	secret, file := setting.NewSecret("canary"), setting.NewFile("/token")
	for _, c := range []struct {
		sasl  Authentication
		fault string
	}{
		{Authentication{}, ""},
		{Authentication{Mechanism: "plain", User: "u", Password: secret}, ""},
		{Authentication{Mechanism: "oauthbearer", TokenFile: file, Extensions: map[string]string{"logicalCluster": "lkc-1"}}, ""},
		{Authentication{Mechanism: "oauthbearer", TokenEndpoint: "https://idp/token", User: "u", Password: secret, Scope: "s"}, ""},
		{Authentication{Mechanism: "oauthbearer", TokenEndpoint: "http://127.0.0.1:8080/token", User: "u", Password: secret}, ""},
		{Authentication{Mechanism: "aws-msk-iam"}, ""},
		{Authentication{TokenFile: file}, "mechanism= is missing"},
		{Authentication{Mechanism: "oauthbearer"}, "either token_file or token_endpoint"},
		{Authentication{Mechanism: "oauthbearer", TokenFile: file, TokenEndpoint: "https://idp/token", User: "u", Password: secret}, "either token_file or token_endpoint"},
		{Authentication{Mechanism: "oauthbearer", TokenFile: file, User: "u"}, "user=u and password have no effect"},
		{Authentication{Mechanism: "oauthbearer", TokenFile: file, Scope: "s"}, "scope=s has no effect"},
		{Authentication{Mechanism: "oauthbearer", TokenEndpoint: "https://idp/token", User: "u"}, "password= is missing"},
		{Authentication{Mechanism: "oauthbearer", TokenEndpoint: "http://idp/token-canary", User: "u", Password: secret}, "token_endpoint=http://idp/****** is no https"},
		{Authentication{Mechanism: "aws-msk-iam", User: "u"}, "user=u and password have no effect"},
		{Authentication{Mechanism: "scram-sha-256", User: "u", Password: secret, TokenFile: file}, "belong to the mechanism oauthbearer"},
	} {
		var faults []string
		c.sasl.validate(setting.NewReport(func(path, value, reason string) { faults = append(faults, path+"="+value+" "+reason) }))
		if text := strings.Join(faults, "\n"); (text == "") != (c.fault == "") || !strings.Contains(text, c.fault) || strings.Contains(text, "canary") {
			t.Errorf("%+v: %s", c.sasl, text)
		}
	}
}
