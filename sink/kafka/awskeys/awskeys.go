// Package awskeys finds the AWS keys that a process may use: of the environment, of a web identity (IRSA), of the container (ECS, EKS Pod
// Identity), of the machine (instance metadata, version 2), in this order. It takes the place of the AWS SDK's chain, without profiles and
// files of a user's login. Sources of the protocols: AWS SDKs and Tools Reference Guide, "Standardized credential providers"; AWS STS API
// Reference, AssumeRoleWithWebIdentity; Amazon EC2 User Guide, "Instance metadata service".
//
// Guarantee: no key and no token is in an error. The package owns no goroutine; a request takes ten seconds at most.
package awskeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Keys are what requests are signed with.
type Keys struct {
	AccessKey, SecretKey, SessionToken string
	Expires                            time.Time // zero: never
}

const (
	requestLimit = 10 * time.Second
	early        = 5 * time.Minute // how long before their end keys are fetched again
	pause        = time.Second     // between two attempts after a failure
	young        = time.Minute     // keys that are not fetched again when they are refused: others would be the same
	answerLimit  = 1 << 20         // bytes
)

// Source gives keys, and fetches them again before they expire. Its methods may be called from several goroutines.
type Source struct {
	env    func(string) string
	client *http.Client
	now    func() time.Time

	mu      sync.Mutex
	keys    Keys
	fetched time.Time
	failed  time.Time // when the last attempt failed
	why     error
}

// New returns the source of this process. It does no I/O.
func New() *Source { return newSource(os.Getenv, time.Now) }

func newSource(env func(string) string, now func() time.Time) *Source {
	return &Source{env: env, now: now, client: &http.Client{
		Timeout:   requestLimit,
		Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true},
		// A redirect could carry a token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// proxy is none for the agents next to the process, which have no TLS.
func proxy(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme != "https" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// Get returns keys that are valid now. While they cannot be fetched again it returns the last ones as long as they are valid.
func (s *Source) Get(ctx context.Context) (Keys, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.keys.AccessKey != "" && (s.keys.Expires.IsZero() || now.Before(s.keys.Expires.Add(-early))) {
		return s.keys, nil
	}
	valid := s.keys.AccessKey != "" && now.Before(s.keys.Expires)
	if s.why == nil || now.Sub(s.failed) >= pause {
		keys, err := s.find(ctx)
		if err == nil {
			s.keys, s.fetched, s.why = keys, now, nil
			return keys, nil
		}
		s.failed, s.why = s.now(), err
	}
	if valid {
		return s.keys, nil
	}
	return Keys{}, s.why
}

// Forget makes the next Get fetch keys: a server has refused those that it returned.
func (s *Source) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Sub(s.fetched) >= young {
		s.keys = Keys{}
	}
}

// find asks the first source that the environment names, and the machine if it names none.
func (s *Source) find(ctx context.Context) (keys Keys, err error) {
	from := "the environment (AWS_ACCESS_KEY_ID)"
	switch {
	case s.env("AWS_ACCESS_KEY_ID") != "" && s.env("AWS_SECRET_ACCESS_KEY") != "":
		return Keys{AccessKey: s.env("AWS_ACCESS_KEY_ID"), SecretKey: s.env("AWS_SECRET_ACCESS_KEY"), SessionToken: s.env("AWS_SESSION_TOKEN")}, nil
	case s.env("AWS_WEB_IDENTITY_TOKEN_FILE") != "" && s.env("AWS_ROLE_ARN") != "":
		from = "the web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"
		keys, err = s.webIdentity(ctx)
	case s.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "" || s.env("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		from = "the container (AWS_CONTAINER_CREDENTIALS_...)"
		keys, err = s.container(ctx)
	case strings.EqualFold(s.env("AWS_EC2_METADATA_DISABLED"), "true"):
		return Keys{}, errors.New("no AWS credentials: the environment names none, and AWS_EC2_METADATA_DISABLED is set")
	default:
		from = "the instance's metadata, since the environment names no others"
		keys, err = s.instance(ctx)
	}
	switch {
	case err != nil:
		return Keys{}, fmt.Errorf("AWS credentials from %s: %w", from, err)
	case keys.AccessKey == "" || keys.SecretKey == "":
		return Keys{}, fmt.Errorf("AWS credentials from %s: the answer has no keys", from)
	case !keys.Expires.IsZero() && !s.now().Before(keys.Expires):
		return Keys{}, fmt.Errorf("AWS credentials from %s: they have expired at %s already", from, keys.Expires.Format(time.RFC3339))
	}
	return keys, nil
}

// jsonKeys is the answer of containers and instances.
type jsonKeys struct {
	Code            string
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	Token           string
	Expiration      time.Time
}

func parseKeys(body []byte) (Keys, error) {
	var k jsonKeys
	if err := json.Unmarshal(body, &k); err != nil {
		return Keys{}, errors.New("the answer is not the JSON of credentials") // the cause could quote them
	}
	if k.Code != "" && k.Code != "Success" {
		return Keys{}, fmt.Errorf("the answer is %.100q", k.Code)
	}
	return Keys{k.AccessKeyID, k.SecretAccessKey, k.Token, k.Expiration}, nil
}

// ask makes one request. Its error names the host alone.
func (s *Source) ask(ctx context.Context, method, address, body string, headers map[string]string) ([]byte, int, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, 0, errors.New("the address is none")
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := s.client.Do(request)
	if err != nil {
		var whole *url.Error
		if errors.As(err, &whole) {
			err = whole.Err // without the path
		}
		return nil, 0, fmt.Errorf("%s does not answer: %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return nil, 0, fmt.Errorf("%s does not answer: %w", request.URL.Host, err)
	}
	return answer, response.StatusCode, nil
}

// get is ask where only 200 is an answer.
func (s *Source) get(ctx context.Context, method, address string, headers map[string]string) ([]byte, error) {
	answer, status, err := s.ask(ctx, method, address, "", headers)
	if err == nil && status != http.StatusOK {
		u, _ := url.Parse(address) // ask has parsed it
		err = fmt.Errorf("%s answers %d %s", u.Host, status, http.StatusText(status))
	}
	return answer, err
}
