package security

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

const token = "a token of more than sixteen characters"

// request is one HTTP request, written as text, because a client library would not send some of these requests.
func request(t *testing.T, addr, method, path, body string, headers ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	testkit.Must(t, conn.SetDeadline(time.Now().Add(patience)))
	if !strings.HasPrefix(strings.Join(headers, "\n"), "Host:") {
		headers = append([]string{"Host: " + addr}, headers...)
	}
	// The server may answer and close before it has read everything; then the answer counts and not the write error.
	_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		method, path, strings.Join(headers, "\r\n"), len(body), body)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

// Without a token the endpoint is for this machine only, and a page in a browser of this machine has no access.
func TestAdminWithoutAToken(t *testing.T) {
	s := outboxTable(t)
	addr := testkit.FreeAddress(t)
	r := newChild(t, s.to("stdout: {}")+fmt.Sprintf("\nadmin: {listen: %q}", addr))
	r.Start(t)
	_, port, err := net.SplitHostPort(addr)
	testkit.Must(t, err)
	const act, look = "/api/v1/sweep", "/api/v1/status"
	for _, c := range []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"this machine", "GET", look, nil, 200},
		{"this machine by name", "GET", look, []string{"Host: localhost:" + port}, 200},
		{"this machine, acting", "POST", act, []string{"Host: localhost:" + port, "Content-Type: application/json"}, 200},
		{"a rebound name", "GET", look, []string{"Host: evil.example:" + port}, 403},
		{"a rebound name, metrics", "GET", "/metrics", []string{"Host: evil.example"}, 403},
		{"a rebound name, acting", "POST", act, []string{"Host: evil.example", "Content-Type: application/json"}, 403},
		{"another origin", "POST", act, []string{"Host: " + addr, "Origin: https://evil.example", "Content-Type: application/json"}, 403},
		{"an opaque origin", "POST", act, []string{"Host: " + addr, "Origin: null", "Content-Type: application/json"}, 403},
		{"a form", "POST", act, []string{"Host: " + addr, "Content-Type: application/x-www-form-urlencoded"}, 400},
	} {
		response := request(t, addr, c.method, c.path, "{}", c.headers...)
		if response.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.name, response.StatusCode, c.status)
		}
	}
	// No page of another origin may read an answer, and none is permitted by CORS.
	for _, method := range []string{"OPTIONS", "GET"} {
		response := request(t, addr, method, look, "", "Host: "+addr, "Origin: https://evil.example", "Access-Control-Request-Method: POST")
		for name := range response.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s answers with %s", method, name)
			}
		}
	}
	for path, mode := range map[string]os.FileMode{filepath.Join(r.StateDir(), "admin.sock"): 0o600, r.StateDir(): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v (%v), want %v", path, info.Mode().Perm(), err, mode)
		}
	}
	if code := r.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// An address that other machines can reach is refused at the start without a token.
func TestAdminForOthersNeedsAToken(t *testing.T) {
	s := outboxTable(t)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		r := newChild(t, s.to("stdout: {}")+fmt.Sprintf("\nadmin: {listen: %q}", addr))
		r.fails(addr, "admin.token")
	}
}

// With a token everything except health and the empty page requires it; too much input is refused, and slow clients are
// disconnected.
func TestAdminWithAToken(t *testing.T) {
	s := outboxTable(t)
	addr := testkit.FreeAddress(t)
	r := newChild(t, s.to("stdout: {}")+fmt.Sprintf("\nadmin: {listen: %q, token: %q}", addr, token))
	r.Start(t)
	right := "Authorization: Bearer " + token
	for _, c := range []struct {
		name, method, path string
		headers            []string
		status             int
	}{
		{"none", "GET", "/api/v1/status", nil, 401},
		{"none, metrics", "GET", "/metrics", nil, 401},
		{"none, events", "GET", "/api/v1/events", nil, 401},
		{"none, acting", "POST", "/api/v1/sweep", []string{"Content-Type: application/json"}, 401},
		{"wrong", "GET", "/api/v1/status", []string{right + "x"}, 401},
		{"cut short", "GET", "/api/v1/status", []string{right[:len(right)-1]}, 401},
		{"another scheme", "GET", "/api/v1/status", []string{"Authorization: Basic " + token}, 401},
		{"in the address", "GET", "/api/v1/status?token=" + strings.ReplaceAll(token, " ", "%20"), nil, 401},
		{"right", "GET", "/api/v1/status", []string{right}, 200},
		{"right, metrics", "GET", "/metrics", []string{right}, 200},
		{"right, acting", "POST", "/api/v1/sweep", []string{right, "Content-Type: application/json"}, 200},
		{"right, from a page elsewhere", "POST", "/api/v1/sweep", []string{right, "Content-Type: application/json", "Origin: https://evil.example"}, 403},
		{"health", "GET", "/healthz", nil, 200},
		{"readiness", "GET", "/readyz", nil, 200},
		{"a header without end", "GET", "/api/v1/status", []string{right, "X-Long: " + strings.Repeat("x", 64<<10)}, 431},
	} {
		if response := request(t, addr, c.method, c.path, "{}", c.headers...); response.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.name, response.StatusCode, c.status)
		}
	}
	large := `{"latest":true,"dry_run":true,"gtid":"` + strings.Repeat("x", 2<<20) + `"}`
	response := request(t, addr, "POST", "/api/v1/checkpoint", large, right, "Content-Type: application/json")
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 400 || !strings.Contains(string(body), "too large") {
		t.Errorf("a large body: %d %.200s %v", response.StatusCode, body, err)
	}
	slow(t, addr, "GET /healthz HTTP/1.1\r\nHost: "+addr+"\r\n") // the headers never end
	slow(t, addr, "POST /api/v1/checkpoint HTTP/1.1\r\nHost: "+addr+"\r\n"+right+
		"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{") // the body never ends
	if _, err := r.Status(); err != nil {
		t.Errorf("the relay does not answer any more: %v", err)
	}
}

// slow starts a request, never ends it, and waits until the server closes the connection.
func slow(t *testing.T, addr, start string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(start))
	testkit.Must(t, err)
	testkit.Must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	if _, err := io.Copy(io.Discard, conn); err != nil && os.IsTimeout(err) {
		t.Errorf("a request that does not end is kept open: %q", start[:30])
	}
}
