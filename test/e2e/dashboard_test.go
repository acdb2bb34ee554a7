package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
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
	listen := testkit.FreeAddress(t)
	defer tab.check(listen)
	token := filepath.Join(t.TempDir(), "token")
	testkit.Must(t, os.WriteFile(token, []byte("let me in, please\n"), 0o600))
	readToken := filepath.Join(t.TempDir(), "read-token")
	testkit.Must(t, os.WriteFile(readToken, []byte("let me look, please\n"), 0o600))
	r := relay.New(t, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{table}, Sink: relay.KafkaSink(cluster.ListenAddrs()[0]),
		Extra: fmt.Sprintf("admin: {listen: %q, token_file: %q, read_token_file: "+readToken+", peers: [{url: 'http://%s', token_file: %q}, {url: 'http://%s'}]}", listen, token, listen, token, testkit.FreeAddress(t)),
	})
	r.Edit(t, "preset:", "ordering: key, preset:")
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
	tab.holds("every chart has points and axes", `[...document.querySelectorAll(".chart")].length === 6 && [...document.querySelectorAll(".chart")].every(c => c.dataset.points > 1 && c.querySelector("canvas"))`)
	tab.shows("#marks", "the relay started")
	tab.shows("#topics", "orders")
	tab.run(chromedp.Focus(".plot"), chromedp.KeyEvent(kb.Home))
	tab.holds("the arrow keys to go through a chart", `document.activeElement.getAttribute("aria-valuenow") === "0" && document.querySelector("#charts-at").textContent !== ""`)
	var newest int
	var chosen string
	tab.run(chromedp.Evaluate(`+document.activeElement.getAttribute("aria-valuemax")`, &newest), chromedp.Text("#charts-at", &chosen))
	// The point need not stay the first: the relay's own points of the time before come later.
	tab.holds("the chosen time to stay while newer ones come", fmt.Sprintf(`+document.activeElement.getAttribute("aria-valuemax") > %d && document.querySelector("#charts-at").textContent === %q`, newest+2, chosen))
	tab.run(chromedp.Click("#ranges button:nth-child(4)"))
	tab.holds("a day to be shown", `document.querySelector("#ranges [aria-pressed=true]").textContent === "24 h"`)

	tab.shows("#rows-head", "other states")
	tab.shows("#rows-head", "oldest claim")
	tab.shows("#rows", " ago")

	tab.hidden("#keys-box")
	insert("nowhere", 1)
	tab.shows("#problems", "nowhere")
	tab.shows("#keys", "nowhere")
	tab.shows("#keys-more", "wait for an earlier row: 1, with 1 row")
	tab.shows("#keys a", "order:")
	tab.shows("#sink", "suspended topic")
	tab.shows("#topics", "its rows wait")
	tab.holds("the problem to name its section", `document.querySelector("#problems a").getAttribute("href") === "docs/operations/broker#a-topic-is-missing"`)
	testkit.Exec(t, table.DB, "INSERT INTO "+table.FullName()+" (biz_type, biz_key, topic, message_body, status, fail_reason) "+
		"VALUES ('order', 'failed before', 'orders', 'x', 3, 'too large'), ('order', 'held', 'orders', 'x', 7, NULL)")
	tab.shows("#problems", "1 row of "+table.FullName()+" is FAILED")
	tab.holds("the problem to lead to its messages", `document.querySelector("#problems a[href^='#messages']").href.includes("status=failed")`)
	tab.run(chromedp.Click("#sweep"))
	tab.shows("#said", "sweep started")
	tab.shows("#sweeps", "rows")

	tab.readsOnly("let me look, please", "let me in, please")
	tab.messages(table)
	tab.run(chromedp.Click("#nav-overview"))

	r.Kill()
	tab.shows("#state", "disconnected")
	tab.shows("#stale", "The page tries again by itself")
	insert("orders", 1)
	testkit.Must(t, db.Purge(t.Context()))
	r.Start(t)
	tab.shows("#state", "degraded")
	tab.shows("#problems", "gap(s) in the log are not acknowledged")
	tab.shows("#gaps", "purged")
	tab.click(`button[aria-label="Acknowledge gap 2"]`, "#said", "gap 2 acknowledged")
	tab.holds("the gap to be no problem any more", `!document.querySelector("#problems").textContent.includes("gaps")`)

	tab.run(chromedp.Click("#nav-relays"))
	tab.shows("#r-rows", "degraded") // the peer that is this relay itself
	tab.shows("#r-rows", "no answer")
	tab.run(chromedp.Click("#nav-overview"))
	tab.looksRight()
	tab.pauses()
	sent := table.Count(t, "status = 2")
	insert("orders", 2)
	testkit.WaitFor(t, patience, "two rows to be sent", func() bool { return table.Count(t, "status = 2") == sent+2 })
	tab.moves()
	tab.run(chromedp.Navigate("http://" + listen + "/docs/operations/broker#a-topic-is-missing"))
	tab.holds("the handbook to open at the section", `document.querySelector(":target").textContent === "A topic is missing"`)
}

// buttons are the names of the buttons and choices that can be seen in any view.
const buttons = `[...document.querySelectorAll("button, input[type=checkbox], input[type=radio]")].filter(b => b.checkVisibility()).map(b => b.textContent || b.getAttribute("aria-label") || b.id)`

// readsOnly looks at every view with the token to read: no button is there that would be refused. With the other one they are.
func (b *tab) readsOnly(readToken, token string) {
	b.t.Helper()
	as := func(token, role string) {
		b.run(chromedp.Evaluate(fmt.Sprintf("sessionStorage.setItem('token', %q)", token), nil), chromedp.Reload())
		b.holds("the page to know who looks", fmt.Sprintf("document.body.dataset.role === %q", role))
	}
	seen := func() (all []string) {
		for view, ready := range map[string]string{"overview": "#topics tr", "messages": "#m-rows tr", "checkpoint": "#c-rows tr"} {
			var names []string
			b.run(chromedp.Click("#nav-" + view))
			b.holds("the view to be filled", fmt.Sprintf("document.querySelector('#view-%s:not([hidden]) %s') !== null", view, ready))
			b.run(chromedp.Evaluate(buttons, &names))
			all = append(all, names...)
		}
		return all
	}
	as(readToken, "reader")
	b.shows("#about", "you may look, not change")
	for _, name := range seen() {
		if !slices.Contains([]string{"10 min", "1 h", "6 h", "24 h", "List", "Find", "中文"}, name) && !strings.Contains(name, "UNKNOWN") && !strings.Contains(name, "too ") {
			b.t.Errorf("who may only read sees %q", name)
		}
	}
	b.looksRight()
	as(token, "operator")
	all := seen()
	for _, name := range []string{"Sweep now", "Pause…", "Preview…", "Download the state", "Choose all that are shown"} {
		if !slices.Contains(all, name) {
			b.t.Errorf("an operator does not see %q, but %q", name, all)
		}
	}
}

// messages finds a message that failed, reads why, sees what happened to it, and sends it again; and takes another one out.
func (b *tab) messages(table *relay.Table) {
	b.t.Helper()
	testkit.Exec(b.t, table.DB, "CREATE TABLE "+table.FullName()+"_failed LIKE "+table.FullName())
	b.run(chromedp.Click("#nav-messages"))
	b.shows("#m-rows", "order:failed before")
	b.shows("#m-rows", "too large")
	b.shows("#m-reasons", "too large")
	b.looksRight()
	b.run(chromedp.SetValue("#m-ref", "no such message"), chromedp.SendKeys("#m-ref", kb.Enter))
	b.shows("#m-one", "Nothing found")
	b.run(chromedp.SetValue("#m-ref", "failed before"), chromedp.SendKeys("#m-ref", kb.Enter))
	b.shows("#m-one .trace", "inserted")
	b.run(chromedp.Click(`//section[@id="m-one"]//button[text()="Show the body"]`, chromedp.BySearch))
	b.shows("#m-one pre", "x")
	b.looksRight()
	b.run(chromedp.Click(`//section[@id="m-one"]//button[text()="Discard…"]`, chromedp.BySearch))
	b.shows("#dialog", "Discard 1 message")
	b.run(chromedp.KeyEvent(kb.Escape))
	b.holds("the dialog to close and change nothing", `!document.querySelector("#dialog").open`)
	b.run(chromedp.Click(`//section[@id="m-one"]//button[text()="Retry…"]`, chromedp.BySearch))
	b.shows("#dialog", "order:failed before")
	b.run(chromedp.Click("#dialog-yes"))
	b.shows("#m-one .said", "1 message set back to PENDING")
	testkit.WaitFor(b.t, patience, "the message to be sent", func() bool { return table.Count(b.t, "biz_key = 'failed before' AND status = 2") == 1 })

	testkit.Exec(b.t, table.DB, "UPDATE "+table.FullName()+" SET status = 3, fail_reason = 'too small' WHERE biz_key = 'failed before'")
	b.run(chromedp.Click("#nav-messages"))
	b.shows("#m-rows", "too small")
	b.run(chromedp.Click("#m-rows input"), chromedp.Click("#m-discard"))
	b.shows("#dialog", "Discard 1 message")
	b.run(chromedp.Click("#dialog-yes"))
	b.shows("#m-said", "1 message discarded")
	b.shows("#m-rows", "")
	if n := table.Count(b.t, "biz_key = 'failed before'"); n != 0 {
		b.t.Errorf("a discarded message is in the table %d times", n)
	}
}

// pauses stops the intake with a reason and resumes it.
func (b *tab) pauses() {
	b.t.Helper()
	b.run(chromedp.Click("#nav-overview"), chromedp.Click("#pause"), chromedp.SendKeys("#pause-reason", "the topic moves"), chromedp.Click("#dialog-yes"))
	b.shows("#problems", "the topic moves")
	b.shows("#pause", "Resume")
	b.run(chromedp.Click("#pause"))
	b.shows("#pause", "Pause")
	b.holds("the pause to be over", `!document.querySelector("#problems").textContent.includes("the topic moves")`)
}

// moves looks at what a move of the checkpoint would do, and does it.
func (b *tab) moves() {
	b.t.Helper()
	b.run(chromedp.Click("#nav-checkpoint"))
	b.shows("#c-now", "position")
	b.shows("#c-rows", "gap: purged")
	b.looksRight()
	b.run(chromedp.SendKeys("#c-file", "binlog.000001"), chromedp.SendKeys("#c-file", kb.Enter))
	b.shows("#c-said", "with a colon between")
	b.republishes()
	b.run(chromedp.Click("input[value=latest]"), chromedp.KeyEvent(kb.Enter))
	b.shows("#dialog", "Move the checkpoint?")
	b.run(chromedp.Click("#dialog-yes"))
	b.shows("#c-said", "The checkpoint was moved to")
	b.shows("#c-rows", "set by an operator: latest")
}

// republishes looks at what a replay would send, and sends it, with a limit. Then it saves the state.
func (b *tab) republishes() {
	b.t.Helper()
	b.run(chromedp.Click("input[value=earliest]"), chromedp.Click("#c-again"), chromedp.SetValue("#c-limit", "0"), chromedp.Click(`//button[text()="Preview…"]`, chromedp.BySearch))
	b.holds("the browser to refuse a limit of none", `document.querySelector("#c-limit").matches(":invalid") && !document.querySelector("#dialog").open`)
	b.run(chromedp.SetValue("#c-limit", "100"), chromedp.Click(`//button[text()="Preview…"]`, chromedp.BySearch))
	b.shows("#dialog", "again?")
	b.holds("the preview to say how many", `/^Publish [1-9][0-9]* rows? again$/.test(document.querySelector("#dialog-yes").textContent)`)
	b.run(chromedp.Click("#dialog-yes"))
	b.holds("them to be published", `/^[1-9][0-9]* rows? published again[.]$/.test(document.querySelector("#c-said").textContent)`)
	b.run(chromedp.Click("#c-again"), chromedp.Click("#c-export"))
	b.shows("#c-saved", "canal-outbox-state.jsonl")
}
