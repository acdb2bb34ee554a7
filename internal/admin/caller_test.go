package admin

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// The list of changes names the person and not only the account: what the login was, where it came from, and what --by says.
func TestG49_TheCallerHasALogin(t *testing.T) {
	f, socket := &fake{}, socketIn(t)
	url := serve(t, Config{Address: "127.0.0.1:0", Token: setting.NewSecret("0123456789abcdef"), Socket: socket}, f)
	me := operator.UserName(os.Getuid())
	for _, c := range []struct {
		claim operator.Claim
		want  string
	}{
		{operator.Claim{}, me},
		{operator.Claim{Login: "alice", From: "10.0.0.5"}, me + ", login alice from 10.0.0.5"},
		{operator.Claim{From: "10.0.0.5"}, me + ", login from 10.0.0.5"},
		{operator.Claim{Login: "alice", By: "王芳 & co"}, me + ", login alice, by 王芳 & co"},
	} {
		ctx := operator.WithClaim(t.Context(), os.Getuid(), c.claim)
		if got := operator.Caller(ctx); got != c.want {
			t.Errorf("without a relay: %q, want %q", got, c.want)
		}
		if p, err := NewClient(socket).Pause(ctx, outbox.Pause{}); err != nil || p.By != c.want {
			t.Errorf("by a relay: %+v %v, want %q", p, err, c.want)
		}
	}
	over := func(header string) answer {
		return ask(t, "POST", url+"/api/v1/pause", "{}", "Content-Type", asJSON, "Authorization", "Bearer 0123456789abcdef", claimHeader, header)
	}
	if got := over("by+Bob"); !strings.Contains(got.body, `"by":"operator token from 127.0.0.1, by Bob"`) {
		t.Errorf("over HTTP: %d %s", got.status, got.body)
	}
	f.paused = nil
	for _, bad := range []string{"two%0Alines", strings.Repeat("x", 201), "%zz", "%ff"} {
		if got := over(bad); got.status != 400 || f.paused != nil {
			t.Errorf("%.20s: %d %s", bad, got.status, got.body)
		}
	}
}

// sudo keeps the login in SUDO_USER, ssh the address in SSH_CONNECTION; a login that is the account itself says nothing new.
func TestG49_LoginOfTheEnvironment(t *testing.T) {
	own := strings.TrimPrefix(operator.UserName(os.Getuid()), "unix user ")
	kernel := "" // the login uid of this very process, which wins where it is set
	if c := operator.LoginClaim(os.Getuid(), func(string) string { return "" }); c.Login != "" {
		kernel = c.Login
	}
	for _, c := range []struct {
		env  map[string]string
		want operator.Claim
	}{
		{map[string]string{"SUDO_USER": "alice"}, operator.Claim{Login: "alice"}},
		{map[string]string{"SUDO_USER": own, "SSH_CONNECTION": "10.0.0.5 4000 10.0.0.9 22"}, operator.Claim{From: "10.0.0.5"}},
	} {
		if kernel != "" {
			c.want.Login = kernel
		}
		if got := operator.LoginClaim(os.Getuid(), func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.env, got, c.want)
		}
	}
	if got := operator.Caller(context.Background()); got != "unknown" {
		t.Errorf("without a caller: %q", got)
	}
}
