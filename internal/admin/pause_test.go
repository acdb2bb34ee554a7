package admin

import (
	"context"
	"io"
	"os/user"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// The peer of the socket or the token says who pauses. A probe reports the pause. A reason that is not one line is refused.
func TestPauseSaysWho(t *testing.T) {
	f, socket := &fake{}, socketIn(t)
	url := serve(t, Config{Address: "127.0.0.1:0", Token: setting.NewSecret("0123456789abcdef"), Socket: socket}, f)
	bearer := []string{"Content-Type", asJSON, "Authorization", "Bearer 0123456789abcdef"}

	got := ask(t, "POST", url+"/api/v1/pause", `{"reason": "topic moves"}`, bearer...)
	if want := `"by":"operator token from 127.0.0.1"`; got.status != 200 || !strings.Contains(got.body, want) || !strings.Contains(got.body, "topic moves") {
		t.Errorf("over HTTP: %d %s", got.status, got.body)
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		if got := ask(t, "GET", url+probe, ""); got.status != 200 || !strings.HasPrefix(got.body, "ok, paused by operator token from 127.0.0.1 since 20") || strings.Contains(got.body, "topic") {
			t.Errorf("%s: %d %s", probe, got.status, got.body)
		}
	}
	f.paused = nil
	for _, bad := range []string{`{"reason": "two\nlines"}`, `{"reason": "` + strings.Repeat("x", 501) + `"}`, `{"because": "x"}`, `[`} {
		if got := ask(t, "POST", url+"/api/v1/pause", bad, bearer...); got.status != 400 || f.paused != nil {
			t.Errorf("%.40s: %d %s, paused %v", bad, got.status, got.body, f.paused)
		}
	}
	if got := ask(t, "POST", url+"/api/v1/pause", "{}", "Content-Type", asJSON); got.status != 401 || f.paused != nil {
		t.Errorf("without the token: %d %s", got.status, got.body)
	}

	c := NewClient(socket)
	me, err := user.Current()
	must(t, err)
	p, err := c.Pause(t.Context(), outbox.Pause{Reason: "by hand"})
	if err != nil || p.By != "unix user "+me.Username || p.Reason != "by hand" {
		t.Errorf("over the socket: %+v %v", p, err)
	}
	if err := c.Resume(t.Context()); err != nil || f.paused != nil {
		t.Errorf("resume: %v, paused %v", err, f.paused)
	}
}

func (f *fake) Pause(_ context.Context, p outbox.Pause) (*outbox.Pause, error) {
	f.paused = &p
	return &p, nil
}

func (f *fake) Resume(context.Context) error {
	f.paused = nil
	return nil
}

func (f *fake) Paused() *outbox.Pause { return f.paused }

func (f *fake) Audit(context.Context, int) ([]operator.Change, error) { return nil, nil }

func (f *fake) Export(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "{}\n")
	return err
}
