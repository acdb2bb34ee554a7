package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
)

var (
	clientSecret = canary("ClientSecret") + " +/="
	accessToken  = canary("AccessToken")
	endpointPath = "/" + canary("EndpointPath")
	awsSecret    = canary("AwsSecret")
	awsSession   = canary("AwsSession")
)

// doorman is a Kafka cluster that takes one token of OAUTHBEARER and no keys of AWS_MSK_IAM.
func doorman(t *testing.T) *fakekafka.Cluster {
	f := fakekafka.New(t, 1, map[string]int{"orders": 1})
	f.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		return req.ResponseKind(), nil, true
	})
	f.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		answer := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		switch given := string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes); {
		case strings.Contains(given, "auth=Bearer "+accessToken+"\x01"):
		case strings.HasPrefix(given, "n,"):
			answer.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
		default:
			answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Access denied")
		}
		return answer, nil, true
	})
	return f
}

// A53 for what the relay logs in with to Kafka, and for secrets in files: a refused client secret, an endpoint that lies, a refused token,
// files that are empty or hold too little, and refused keys of AWS.
func TestA53_NoSecretsAnywhereLogins(t *testing.T) {
	t.Parallel()
	var lies atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case lies.Load():
			fmt.Fprintf(w, `{"access_token": ["%s"]}`, accessToken)
		case secret != "zq7CanaryClientSecret+%2B%2F%3D" || r.URL.Path != endpointPath:
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
		default:
			answer, _ := json.Marshal(map[string]any{"access_token": accessToken, "expires_in": 1, "token_type": "bearer"}) // of plain values
			_, _ = w.Write(answer)                                                                                          // the test sees the row
		}
	}))
	t.Cleanup(endpoint.Close)
	fake, dir := doorman(t), t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	tokens := func(string) string {
		return fmt.Sprintf("kafka: {brokers: [%q], max_message_bytes: 50000, sasl: {mechanism: oauthbearer, user: relay, password_file: %q, token_endpoint: %q}}",
			fake.Addr(), file("client-secret", wrongPassword), endpoint.URL+endpointPath)
	}
	a := newAviary(t, testkit.MySQL, tokens)
	filed := func() {
		yaml := a.yaml(databasePassword, "", "json")
		for name, secret := range map[string]string{"password": databasePassword, "token": adminToken} {
			yaml = strings.Replace(yaml, fmt.Sprintf("%s: %q", name, secret), fmt.Sprintf("%s_file: %q", name, file(name, secret)), 1)
		}
		a.configure(yaml)
	}
	filed()
	a.Start(t)
	a.exec("INSERT INTO t_local_message (biz_type, biz_key, topic, message_body) VALUES ('order', 'x', 'orders', ?)", body)
	a.says("refuses", "invalid_client")
	a.commands("refused client secret")
	a.ask("refused client secret")
	file("client-secret", clientSecret)
	a.rows(1)
	file("client-secret", "")
	file("password", "")
	file("token", adminToken[:10])
	lies.Store(true)
	a.cut()
	testkit.WaitFor(t, patience, "status to name the files", func() bool {
		status, err := a.Status() // over the socket; a command would find the fault in its own configuration
		said := strings.Join(status.Problems, "\n")
		return err == nil && strings.Contains(said, "is empty") && strings.Contains(said, "holds less than 16 characters")
	})
	a.commands("unusable files")
	a.ask("unusable files")
	file("password", databasePassword)
	a.stop(syscall.SIGTERM)

	file("token", adminToken)
	a.sink = func(string) string {
		return fmt.Sprintf("kafka: {brokers: [%q], max_message_bytes: 50000, sasl: {mechanism: oauthbearer, token_file: %q}}", fake.Addr(), file("kafka-token", canary("RefusedToken")))
	}
	filed()
	a.Start(t)
	a.says("refuses the token")
	a.commands("refused token")
	a.ask("refused token")
	file("kafka-token", accessToken)
	a.rows(2)
	a.stop(syscall.SIGTERM)

	a.sink = func(string) string {
		return fmt.Sprintf("kafka: {brokers: [%q], max_message_bytes: 50000, sasl: {mechanism: aws-msk-iam}}", fake.Addr())
	}
	filed()
	a.Env = append(a.Env, "AWS_REGION=eu-west-1", "AWS_ACCESS_KEY_ID=AKID", "AWS_SECRET_ACCESS_KEY="+awsSecret, "AWS_SESSION_TOKEN="+awsSession)
	a.Start(t)
	a.says("Access denied")
	a.commands("refused AWS keys")
	a.ask("refused AWS keys")
	a.stop(syscall.SIGQUIT)
	a.says("goroutine ")
	a.check()
}
