package e2e

import (
	"fmt"
	"os"
	"path/filepath"
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
	tab.holds("every chart has points and axes", `[...document.querySelectorAll(".chart")].length === 6 && [...document.querySelectorAll(".chart")].every(c => c.dataset.points > 1 && c.querySelector("canvas"))`)
	tab.shows("#marks", "the relay started")
	tab.shows("#topics", "orders")
	tab.run(chromedp.Focus(".plot"), chromedp.KeyEvent(kb.Home))
	tab.holds("the arrow keys to go through a chart", `document.activeElement.getAttribute("aria-valuenow") === "0" && document.querySelector("#charts-at").textContent !== ""`)
	tab.run(chromedp.Click("#ranges button:nth-child(4)"))
	tab.holds("a day to be shown", `document.querySelector("#ranges [aria-pressed=true]").textContent === "24 h"`)

	tab.shows("#rows-head", "other states")
	tab.shows("#rows-head", "oldest claim")
	tab.shows("#rows", " ago")

	insert("nowhere", 1)
	tab.shows("#problems", "nowhere")
	tab.shows("#sink", "suspended topic")
	tab.shows("#topics", "its rows wait")
	tab.holds("the problem to name its section", `document.querySelector("#problems a").getAttribute("href") === "docs/operations#a-topic-is-missing"`)
	testkit.Exec(t, table.DB, "INSERT INTO "+table.FullName()+" (biz_type, biz_key, topic, message_body, status, fail_reason) "+
		"VALUES ('order', 'failed before', 'orders', 'x', 3, 'too large'), ('order', 'held', 'orders', 'x', 7, NULL)")
	tab.shows("#problems", "1 row of "+table.FullName()+" is FAILED")
	tab.shows("#problems", "WHERE `status` = 3")
	tab.run(chromedp.Click("#sweep"))
	tab.shows("#said", "sweep started")
	tab.shows("#sweeps", "rows")

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

	tab.looksRight()
	tab.run(chromedp.Navigate("http://" + listen + "/docs/operations#a-topic-is-missing"))
	tab.holds("the handbook to open at the section", `document.querySelector(":target").textContent === "A topic is missing"`)
}
