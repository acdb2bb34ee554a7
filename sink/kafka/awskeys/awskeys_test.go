package awskeys

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start is the test's time.
var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// agent is a fake of all the endpoints. Its answers are those of the AWS documents.
type agent struct {
	*httptest.Server
	env      map[string]string
	now      time.Time
	keys     int                                         // number of the keys that the next answer has
	asked    []string                                    // requests, as method and path
	answered func(path string) (status int, body string) // replaces the answer; nil: none does
	life     time.Duration
}

func newAgent(t *testing.T, env map[string]string) (*agent, *Source) {
	t.Helper()
	a := &agent{env: env, now: start, life: time.Hour}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	s := newSource(func(name string) string { return strings.ReplaceAll(a.env[name], "AGENT", a.URL) }, func() time.Time { return a.now })
	return a, s
}

const (
	roleARN  = "arn:aws:iam::123456789012:role/relay"
	identity = "the.identity.token"
)

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked = append(a.asked, r.Method+" "+r.URL.Path)
	if a.answered != nil {
		if status, body := a.answered(r.URL.Path); status != 0 {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return
		}
	}
	id, secret, token, until := fmt.Sprintf("ID%d", a.keys), fmt.Sprintf("canary-secret-%d", a.keys), fmt.Sprintf("canary-token-%d", a.keys), a.now.Add(a.life).Format(time.RFC3339)
	asJSON := fmt.Sprintf(`{"Code":"Success","LastUpdated":"2026-11-25T11:00:00Z","Type":"AWS-HMAC","AccessKeyId":%q,"SecretAccessKey":%q,"Token":%q,"Expiration":%q}`, id, secret, token, until)
	form := func(name string) string { return r.PostFormValue(name) }
	switch {
	case r.Method == "PUT" && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
		fmt.Fprint(w, "a-session")
	case strings.HasPrefix(r.URL.Path, "/latest/") && r.Header.Get("X-aws-ec2-metadata-token") != "a-session":
		w.WriteHeader(401)
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "relay-role")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/relay-role":
		a.keys++
		fmt.Fprint(w, asJSON)
	case r.URL.Path == "/v2/credentials" && r.Header.Get("Authorization") == "agent-token":
		a.keys++
		fmt.Fprint(w, strings.Replace(asJSON, `"Code":"Success",`, "", 1))
	case r.Method == "POST" && form("Action") == "AssumeRoleWithWebIdentity" && form("Version") == "2011-06-15" && form("RoleArn") == roleARN &&
		form("WebIdentityToken") == identity && form("RoleSessionName") == "canal-outbox":
		a.keys++
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<SubjectFromWebIdentityToken>relay</SubjectFromWebIdentityToken><Credentials><SessionToken>%s</SessionToken><SecretAccessKey>%s</SecretAccessKey>
<Expiration>%s</Expiration><AccessKeyId>%s</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>
<ResponseMetadata><RequestId>ad4156e9</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>`, token, secret, until, id)
	case r.Method == "POST":
		w.WriteHeader(403)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>`)
	default:
		w.WriteHeader(404)
	}
}

// fileWith returns the path of a file.
func fileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// environments name one source each.
func environments(t *testing.T) map[string]map[string]string {
	return map[string]map[string]string{
		"web identity": {"AWS_WEB_IDENTITY_TOKEN_FILE": fileWith(t, identity+"\n"), "AWS_ROLE_ARN": roleARN, "AWS_ENDPOINT_URL_STS": "AGENT"},
		"container":    {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "AGENT/v2/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": fileWith(t, "agent-token")},
		"instance":     {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "AGENT/"},
	}
}

func TestEachSource(t *testing.T) {
	for name, env := range environments(t) {
		t.Run(name, func(t *testing.T) {
			a, s := newAgent(t, env)
			get := func(want int) {
				t.Helper()
				k, err := s.Get(t.Context())
				if err != nil || k.AccessKey != fmt.Sprintf("ID%d", want) || k.SecretKey != fmt.Sprintf("canary-secret-%d", want) || k.SessionToken != fmt.Sprintf("canary-token-%d", want) {
					t.Fatalf("%+v, %v, want keys %d", k, err, want)
				}
			}
			get(0)
			a.now = a.now.Add(54 * time.Minute)
			get(0)
			a.now = a.now.Add(2 * time.Minute) // five before their end
			get(1)
			a.now = a.now.Add(time.Hour - time.Minute)
			a.answered = func(string) (int, string) { return 500, "canary" }
			get(1) // the old ones are valid
			asked := len(a.asked)
			get(1)
			if len(a.asked) != asked {
				t.Error("it is asked again at once after a failure")
			}
			a.now = a.now.Add(2 * time.Minute)
			if k, err := s.Get(t.Context()); err == nil || strings.Contains(err.Error(), "canary") {
				t.Errorf("expired keys: %+v, %v", k, err)
			}
			a.now, a.answered = a.now.Add(2*time.Second), nil
			get(2)
			s.Forget() // too young
			get(2)
			a.now = a.now.Add(2 * time.Minute)
			s.Forget()
			get(3)
		})
	}
}

func TestTheOrderOfSources(t *testing.T) {
	env := map[string]string{}
	for _, one := range environments(t) {
		for name, value := range one {
			env[name] = value
		}
	}
	for _, step := range []struct{ asks, without string }{
		{"", "AWS_ACCESS_KEY_ID"}, {"POST /", "AWS_ROLE_ARN"}, {"GET /v2/credentials", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}, {"PUT /latest/api/token", ""},
	} {
		if step.asks == "" {
			env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"] = "ID", "canary"
		}
		a, s := newAgent(t, env)
		if k, err := s.Get(t.Context()); err != nil || k.AccessKey == "" || step.asks == "" && (k.AccessKey != "ID" || !k.Expires.IsZero()) {
			t.Errorf("%q: %v", step.asks, err)
		}
		if first := strings.Join(a.asked, ","); !strings.HasPrefix(first, step.asks) || step.asks == "" && first != "" {
			t.Errorf("asked %s, want %s", first, step.asks)
		}
		delete(env, step.without)
	}
	env["AWS_EC2_METADATA_DISABLED"] = "True"
	if _, s := newAgent(t, env); s != nil {
		if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "AWS_EC2_METADATA_DISABLED") {
			t.Errorf("without any: %v", err)
		}
	}
}

// An endpoint that is away, slow or says what is not so: an error that says which, and shows nothing of the answer.
func TestBadAnswers(t *testing.T) {
	for name, env := range environments(t) {
		for _, c := range []struct{ body, says string }{
			{"", ""},
			{"canary", ""},
			{`{"AccessKeyId":"canary"}`, ""},
			{`{"Code":"Failed","AccessKeyId":"ID","SecretAccessKey":"canary"}`, ""},
			{`{"AccessKeyId":"ID","SecretAccessKey":"canary","Token":"canary","Expiration":"2026-11-25T11:59:59Z"}`, ""},
			{`<AssumeRoleWithWebIdentityResponse><canary>`, ""},
			{strings.Repeat("canary", 1<<18), ""},
		} {
			a, s := newAgent(t, env)
			a.answered = func(path string) (int, string) {
				if strings.HasPrefix(path, "/latest/") && !strings.HasSuffix(path, "relay-role") {
					return 0, ""
				}
				return 200, c.body
			}
			if k, err := s.Get(t.Context()); err == nil || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s, %.60q: %+v, %v", name, c.body, k, err)
			}
		}
		a, s := newAgent(t, env)
		a.Close()
		if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is away: %v", name, err)
		}
		_, s = newAgent(t, env)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Get(ended); err == nil {
			t.Errorf("%s: no error after the end of the context", name)
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	all := environments(t)
	all["web identity"]["AWS_ROLE_ARN"] = "arn:other"
	all["container"]["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = fileWith(t, "wrong")
	for name, says := range map[string]string{"web identity": "STS answers 403 AccessDenied", "container": "404"} {
		if _, s := newAgent(t, all[name]); s != nil {
			if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	all["container"]["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = fileWith(t, " \n")
	all["web identity"]["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere/token"
	for name, says := range map[string]string{"web identity": "no such file", "container": "is empty"} {
		if _, s := newAgent(t, all[name]); s != nil {
			if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	a, s := newAgent(t, map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://example.com/credentials"})
	if _, err := s.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "has no TLS") || len(a.asked) > 0 {
		t.Errorf("another host: %v", err)
	}
}

func TestEndpointsOfSTS(t *testing.T) {
	env := map[string]string{}
	s := newSource(func(name string) string { return env[name] }, time.Now)
	for _, c := range []struct{ name, value, want string }{
		{"", "", "https://sts.amazonaws.com"},
		{"AWS_DEFAULT_REGION", "eu-west-1", "https://sts.eu-west-1.amazonaws.com"},
		{"AWS_REGION", "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn"},
		{"AWS_ENDPOINT_URL_STS", "https://sts.internal", "https://sts.internal"},
	} {
		env[c.name] = c.value
		if got := s.sts(); got != c.want {
			t.Errorf("%s: %s, want %s", c.value, got, c.want)
		}
	}
	secure, plain := &http.Request{URL: &url.URL{Scheme: "https", Host: "a"}}, &http.Request{URL: &url.URL{Scheme: "http", Host: "169.254.169.254"}}
	if u, err := proxy(plain); u != nil || err != nil {
		t.Errorf("a proxy for %v: %v, %v", plain.URL, u, err)
	}
	if _, err := proxy(secure); err != nil {
		t.Error(err)
	}
}
