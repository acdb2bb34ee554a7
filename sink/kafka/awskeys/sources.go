package awskeys

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// webIdentity exchanges the token in a file, which Kubernetes replaces, for keys of a role.
func (s *Source) webIdentity(ctx context.Context) (Keys, error) {
	token, err := readToken(s.env("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return Keys{}, err
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {s.env("AWS_ROLE_ARN")},
		"RoleSessionName": {cmp.Or(s.env("AWS_ROLE_SESSION_NAME"), "canal-outbox")}, "WebIdentityToken": {token},
	}
	answer, status, err := s.ask(ctx, http.MethodPost, s.sts(), form.Encode(), map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
	if err != nil {
		return Keys{}, err
	}
	if status != http.StatusOK {
		var refused struct {
			Code string `xml:"Error>Code"`
		}
		_ = xml.Unmarshal(answer, &refused) // another form of an answer has no code
		return Keys{}, fmt.Errorf("STS answers %d %.100s: check AWS_ROLE_ARN and the trust policy of the role", status, cmp.Or(refused.Code, http.StatusText(status)))
	}
	var granted struct {
		AccessKey  string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		SecretKey  string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Token      string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Expiration time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	}
	if err := xml.Unmarshal(answer, &granted); err != nil {
		return Keys{}, errors.New("the answer of STS is not the XML of credentials")
	}
	return Keys{granted.AccessKey, granted.SecretKey, granted.Token, granted.Expiration}, nil
}

// sts is the endpoint of the region, or the one that the environment names.
func (s *Source) sts() string {
	region := cmp.Or(s.env("AWS_REGION"), s.env("AWS_DEFAULT_REGION"))
	switch {
	case s.env("AWS_ENDPOINT_URL_STS") != "":
		return s.env("AWS_ENDPOINT_URL_STS")
	case region == "":
		return "https://sts.amazonaws.com"
	case strings.HasPrefix(region, "cn-"):
		return "https://sts." + region + ".amazonaws.com.cn"
	}
	return "https://sts." + region + ".amazonaws.com"
}

// The hosts that keys are asked of without TLS, besides those of this machine: of ECS, and of EKS Pod Identity.
var containerHosts = map[string]bool{"169.254.170.2": true, "169.254.170.23": true, "fd00:ec2::23": true}

// container asks the agent next to the container.
func (s *Source) container(ctx context.Context) (Keys, error) {
	address := s.env("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if relative := s.env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); relative != "" {
		address = "http://169.254.170.2" + relative
	}
	u, err := url.Parse(address)
	if err != nil {
		return Keys{}, errors.New("the address is none")
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && !containerHosts[u.Hostname()] && (ip == nil || !ip.IsLoopback()) {
		return Keys{}, fmt.Errorf("%s is neither this machine nor an agent of AWS, and has no TLS", u.Host)
	}
	headers := map[string]string{}
	if file := s.env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		if headers["Authorization"], err = readToken(file); err != nil {
			return Keys{}, err
		}
	} else if token := s.env("AWS_CONTAINER_AUTHORIZATION_TOKEN"); token != "" {
		headers["Authorization"] = token
	}
	answer, err := s.get(ctx, http.MethodGet, address, headers)
	if err != nil {
		return Keys{}, err
	}
	return parseKeys(answer)
}

// instance asks the machine, by version 2 of its protocol: version 1 may be off, and other programs can be made to ask it.
func (s *Source) instance(ctx context.Context) (Keys, error) {
	base := strings.TrimRight(cmp.Or(s.env("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "http://169.254.169.254"), "/")
	session, err := s.get(ctx, http.MethodPut, base+"/latest/api/token", map[string]string{"X-aws-ec2-metadata-token-ttl-seconds": "300"})
	if err != nil {
		return Keys{}, err
	}
	headers := map[string]string{"X-aws-ec2-metadata-token": string(session)}
	const roles = "/latest/meta-data/iam/security-credentials/"
	role, err := s.get(ctx, http.MethodGet, base+roles, headers)
	if err != nil {
		return Keys{}, fmt.Errorf("which role the instance has: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(role)), "\n")
	answer, err := s.get(ctx, http.MethodGet, base+roles+url.PathEscape(name), headers)
	if err != nil {
		return Keys{}, err
	}
	return parseKeys(answer)
}

// readToken reads a token at each use: its file is replaced.
func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return token, nil
}
