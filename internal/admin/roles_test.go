package admin

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Every route asks for the role that the table names: without a token only what everyone may, with the token to read nothing that
// changes anything or shows a body.
func TestRoles(t *testing.T) {
	const mayAct, maySee = "0123456789abcdef", "fedcba9876543210"
	f := &fake{}
	a := newAPI(f, prometheus.NewRegistry(), zap.NewNop())
	all := a.table()
	handler := guard(tokens{operator: setting.NewSecret(mayAct), reader: setting.NewSecret(maySee)}, a.routes())
	status := func(r *route, token, query string) int {
		path := strings.NewReplacer("{$}", "", "{id}", "404", "{ref}", "absent").Replace(r.path)
		request := httptest.NewRequest(r.method, path+query, strings.NewReader("{"))
		request.Header.Set("Content-Type", asJSON)
		request.Host = "127.0.0.1"
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		return w.Code
	}
	for i := range all {
		r := &all[i]
		if strings.HasSuffix(r.path, "/events") {
			continue // it does not end; its role is looked at like the others'
		}
		for _, c := range []struct {
			token string
			is    role
		}{{"", everyone}, {"wrong", everyone}, {maySee, reader}, {mayAct, operatorRole}} {
			got := status(r, c.token, "")
			want := map[bool]int{true: 401, false: 403}[c.is == everyone]
			if refused := got == 401 || got == 403; refused != (c.is < r.needs) || refused && got != want {
				t.Errorf("%s %s with the token %q: %d, needs %s", r.method, r.path, c.token, got, r.needs)
			}
		}
		if r.method == "POST" && r.needs != operatorRole {
			t.Errorf("%s %s is for %s", r.method, r.path, r.needs)
		}
	}
	body := &route{method: "GET", path: "/api/v1/messages/{ref}"}
	if got := status(body, maySee, "?body=1"); got != 403 {
		t.Errorf("a body with the token to read: %d", got)
	}
	if got := status(body, mayAct, "?body=1"); got != 404 {
		t.Errorf("a body with the operator's token: %d", got)
	}
	if f.sweeps.Load() != 1 || f.passes.Load() != 1 || f.paused != nil {
		t.Errorf("what was refused reached the service: %d sweeps, %d passes", f.sweeps.Load(), f.passes.Load())
	}
}

// Profiles show what is in memory: the socket has them, no token reaches them.
func TestProfilesAreOfTheSocket(t *testing.T) {
	socket := socketIn(t)
	url := serve(t, Config{Address: "127.0.0.1:0", Socket: socket}, &fake{})
	if got := ask(t, "GET", url+"/debug/pprof/heap", ""); got.status != 404 {
		t.Errorf("over HTTP: %d", got.status)
	}
	must(t, NewClient(socket).do(t.Context(), "GET", "/debug/pprof/cmdline", nil, nil))
}

// A token is that of the file at each request. While both files hold the same token it gives the lesser right.
func TestTokensAreReplaced(t *testing.T) {
	dir := t.TempDir()
	put := func(name, token string) setting.Secret {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Add(-time.Minute)
		if err := os.Chtimes(path, before, before); err != nil {
			t.Fatal(err)
		}
		return setting.NewFile(path).Secret()
	}
	const first, second, reads = "0123456789abcdef", "another-0123456789", "fedcba9876543210"
	known := tokens{operator: put("token", first), reader: put("read", reads)}
	want := func(token string, want role) {
		t.Helper()
		request := httptest.NewRequest("GET", "/", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		if is, _ := known.roleOf(request); is != want {
			t.Errorf("%s is %v, want %v", token, is, want)
		}
	}
	want(first, operatorRole)
	want(reads, reader)
	put("token", second)
	want(first, everyone)
	want(second, operatorRole)
	put("token", "")
	want("", everyone)
	want(second, operatorRole)
	put("read", second)
	want(second, reader)
}
