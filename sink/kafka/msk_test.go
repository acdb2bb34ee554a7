package kafka

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// verified computes what a login with AWS_MSK_IAM must be signed with, by the rules that AWS publishes (Signature Version 4, query string
// with signed headers "host"; the README of aws-msk-iam-auth for the fields), and returns what is wrong; "" when nothing is.
func verified(payload []byte, secrets map[string]string) string {
	var f map[string]string
	if err := json.Unmarshal(payload, &f); err != nil {
		return err.Error()
	}
	credential := strings.Split(f["x-amz-credential"], "/")
	if len(credential) != 5 {
		return "the credential has not five parts"
	}
	id, date, region, service, end := credential[0], credential[1], credential[2], credential[3], credential[4]
	secret, known := secrets[id]
	at, err := time.Parse("20060102T150405Z", f["x-amz-date"])
	switch {
	case !known:
		return "unknown key " + id
	case f["version"] != "2020_10_22" || f["action"] != "kafka-cluster:Connect" || f["user-agent"] == "" || f["host"] == "":
		return "version, action, user-agent or host"
	case f["x-amz-algorithm"] != "AWS4-HMAC-SHA256" || f["x-amz-signedheaders"] != "host":
		return "algorithm or signed headers"
	case service != "kafka-cluster" || end != "aws4_request" || region != "eu-west-1" || !strings.HasPrefix(f["x-amz-date"], date):
		return "scope " + f["x-amz-credential"]
	case err != nil || time.Since(at).Abs() > 15*time.Minute:
		return "date " + f["x-amz-date"]
	}
	var query []string
	for _, name := range []string{"Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token", "X-Amz-SignedHeaders"} {
		if value, is := f[strings.ToLower(name)]; is {
			query = append(query, name+"="+strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		}
	}
	slices.Sort(query)
	digest := func(text string) string { sum := sha256.Sum256([]byte(text)); return hex.EncodeToString(sum[:]) }
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	request := strings.Join([]string{"GET", "/", strings.Join(query, "&"), "host:" + f["host"], "", "host", digest("")}, "\n")
	text := strings.Join([]string{"AWS4-HMAC-SHA256", f["x-amz-date"], strings.Join(credential[1:], "/"), digest(request)}, "\n")
	key := mac(mac(mac(mac([]byte("AWS4"+secret), date), region), service), "aws4_request")
	if want := hex.EncodeToString(mac(key, text)); want != f["x-amz-signature"] {
		return "signature"
	}
	return ""
}

// Logins are signed as AWS checks it, with the keys of now, and a refused one is a fault of the service that shows no key.
func TestMSKIAM(t *testing.T) {
	f := newFake(t)
	topic := createTopic(t, f.Addr(), nil)
	var accepted atomic.Int64
	f.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		answer := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		answer.SupportedMechanisms = []string{"AWS_MSK_IAM"}
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "AWS_MSK_IAM" {
			answer.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return answer, nil, true
	})
	f.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		answer := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		if why := verified(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, map[string]string{"AKID": "canary/secret+1", "AKSESSION": "canary-2"}); why != "" {
			answer.ErrorCode, answer.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Access denied: "+why)
			return answer, nil, true
		}
		accepted.Add(1)
		answer.SASLAuthBytes = []byte(`{"version":"2020_10_22","request-id":"1"}`)
		return answer, nil, true
	})
	t.Setenv("AWS_REGION", "eu-west-1")
	for _, c := range []struct {
		id, secret, session string
		class               outbox.Class
	}{
		{"AKID", "canary/secret+1", "", outbox.ClassNone},
		{"AKSESSION", "canary-2", "canary token/+= with spaces", outbox.ClassNone},
		{"AKID", "canary-wrong", "", outbox.ClassService},
		{"UNKNOWN", "canary", "", outbox.ClassService},
	} {
		t.Run(fmt.Sprint(c.id, c.class), func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", c.id)
			t.Setenv("AWS_SECRET_ACCESS_KEY", c.secret)
			t.Setenv("AWS_SESSION_TOKEN", c.session)
			section := &Section{SASL: Authentication{Mechanism: "aws-msk-iam"}}
			before := accepted.Load()
			s := newSink(t, f.Addr(), func(cfg *config) {
				cfg.sasl, cfg.logins.secret, cfg.logins.refused = section.SASL.mechanism(section.TLS.CA)
				cfg.times.delivery = time.Second
			})
			got := publish(t, s, messages(topic, 3)...)
			wantClass(t, c.class, got...)
			err := s.Probe(t.Context())
			if (err == nil) != (c.class == outbox.ClassNone) || strings.Contains(fmt.Sprint(err, got[0].Reason), "canary") {
				t.Errorf("probe: %v; %s", err, got[0].Reason)
			}
			if c.class == outbox.ClassNone && accepted.Load() == before {
				t.Error("nothing has logged in")
			}
		})
	}
}
