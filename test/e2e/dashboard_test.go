package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// P10: what an operator sees and does on the dashboard, in a real browser.
func TestP10_Dashboard(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	testkit.Must(t, err)
	t.Cleanup(cluster.Close)
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	listen := closedPort(t)
	defer tab.check(listen)
	token := filepath.Join(t.TempDir(), "token")
	testkit.Must(t, os.WriteFile(token, []byte("let me in, please\n"), 0o600))
	r := relay.New(t, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{table}, Sink: relay.KafkaSink(cluster.ListenAddrs()[0]),
		Extra: fmt.Sprintf("admin: {listen: %q, token_file: %q}", listen, token),
	})
	insert := func(topic string, rows int) {
		t.Helper()
		for range rows {
			key := fmt.Sprint(table.Count(t, "TRUE"))
			testkit.Must(t, table.Insert(t.Context(), table.DB, relay.Row{BizType: "order", Key: key, Topic: topic, Body: []byte("x")}))
		}
	}
	r.Start(t)

	tab.run(chromedp.Navigate("http://" + listen + "/"))
	tab.shows("#state", "token needed")
	tab.run(chromedp.SendKeys("#token", "let me in, please"), chromedp.Click("#login button"))
	tab.shows("#state", "working")
	tab.hidden("#login")
	tab.hidden("#problems-box")
	tab.shows("#about", "up ")
	tab.shows("#source", "connected")
	tab.shows("#lag", "0 s")

	insert("orders", 30)
	tab.shows("#flight", "published30")
	tab.shows("#rows", table.FullName())
	tab.shows("#path", "checkpoint")
	tab.holds("every chart has a line", `["lag", "rate", "latency"].every(c => document.querySelector("#" + c + "-chart polyline").getAttribute("points").includes(","))`)

	tab.shows("#rows-head", "other states")
	tab.shows("#rows-head", "oldest claim")
	tab.shows("#rows", " ago")

	insert("nowhere", 1)
	tab.shows("#problems", "nowhere")
	tab.shows("#sink", "suspended topic")
	testkit.Exec(t, table.DB, "INSERT INTO "+table.FullName()+" (biz_type, biz_key, topic, message_body, status, fail_reason) "+
		"VALUES ('order', 'failed before', 'orders', 'x', 3, 'too large'), ('order', 'held', 'orders', 'x', 7, NULL)")
	tab.shows("#problems", "1 row of "+table.FullName()+" is FAILED")
	tab.shows("#problems", "WHERE `status` = 3")
	tab.run(chromedp.Click("#sweep"))
	tab.shows("#said", "sweep started")
	tab.shows("#sweep-state", "rows")

	r.Kill()
	tab.shows("#state", "disconnected")
	insert("orders", 1)
	testkit.Must(t, db.Purge(t.Context()))
	r.Start(t)
	tab.shows("#state", "degraded")
	tab.shows("#problems", "there are gaps in the log that nobody has acknowledged")
	tab.shows("#gaps", "purged")
	tab.run(chromedp.Click(`button[aria-label="Acknowledge gap 2"]`))
	tab.shows("#said", "gap 2 acknowledged")
	tab.holds("the gap to be no problem any more", `!document.querySelector("#problems").textContent.includes("gaps")`)

	tab.run(chromedp.EmulateViewport(360, 740))
	tab.holds("no part is wider than a narrow screen", `document.documentElement.scrollWidth <= innerWidth`)
}

// tab is a tab of a headless browser that notes what the page does wrong.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	faults   []string
	requests []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.WSURLReadTimeout(patience))
	allocated, end := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(end)
	b := &tab{t: t}
	b.ctx, _ = chromedp.NewContext(allocated)
	t.Cleanup(func() { testkit.Must(t, chromedp.Cancel(b.ctx)) }) // waits for the browser's end
	chromedp.ListenTarget(b.ctx, b.note)
	// The browser starts here and lives as long as this context.
	testkit.Must(t, chromedp.Run(b.ctx, network.Enable(), cdpruntime.Enable()))
	return b
}

// browser returns the path of a Chromium, which is installed if there is none.
func browser(t *testing.T) string {
	t.Helper()
	find := func() string {
		// Debian's script for the first stays beside the browser and would be ended in its place.
		for _, name := range []string{"/usr/lib/chromium/chromium-headless-shell", "chromium", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
		return ""
	}
	if find() == "" {
		if os.Getenv("SKIP_BROWSER") == "1" {
			t.Skip("SKIP_BROWSER=1")
		}
		testkit.Must(t, servers.Install(t.Context(), "browser"))
	}
	return find()
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Error())
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// check wants that no script failed and that nothing was asked of any other host: the page works where there is no internet.
func (b *tab) check(host string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Errorf("the page's script failed: %s", fault)
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was seen")
	}
	for _, url := range b.requests {
		if !strings.HasPrefix(url, "http://"+host+"/") && !strings.HasPrefix(url, "data:") {
			b.t.Errorf("the page asked for %s", url)
		}
	}
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	testkit.Must(b.t, chromedp.Run(ctx, actions...))
}

// holds waits until an expression of the page is true.
func (b *tab) holds(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var last string
	for {
		var truth bool
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, &truth), chromedp.InnerHTML("body main", &last))
		switch {
		case err != nil:
			b.t.Fatalf("%s: %v; the page shows:\n%s", what, err, last)
		case truth:
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *tab) shows(element, text string) {
	b.t.Helper()
	b.holds(element+" to show "+text, fmt.Sprintf("document.querySelector(%q).textContent.includes(%q)", element, text))
}

func (b *tab) hidden(element string) {
	b.t.Helper()
	b.holds(element+" to be hidden", fmt.Sprintf("document.querySelector(%q).hidden", element))
}
