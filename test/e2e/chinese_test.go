package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// english lists the texts of the page that have two English words in a row and no Chinese character: headings, labels, buttons, and the
// names of values. Cells and values are data.
const english = `[...document.querySelectorAll("h1, h2, h3, th, dt, button, label, legend, summary, figcaption strong, .legend span, option, [aria-label], [placeholder], .soft")]
	.flatMap(e => [[...e.childNodes].filter(n => n.nodeType === Node.TEXT_NODE).map(n => n.data).join(" "), e.getAttribute("aria-label") || "", e.placeholder || ""])
	.map(s => s.trim()).filter(s => /[A-Za-z]{2,} [A-Za-z]{2,}/.test(s) && !/[\u4e00-\u9fff]/.test(s) && s !== "message id")`

// P10: the page in Chinese: all of its texts, the problems of the relay, and the section of the handbook that a problem leads to. The choice
// stays, and leads back to English.
func TestP10_PageInChinese(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	testkit.Must(t, err)
	t.Cleanup(cluster.Close)
	db := testkit.SharedDatabase(t, testkit.MariaDB)
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	listen := testkit.FreeAddress(t)
	r := relay.New(t, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{table}, Sink: relay.KafkaSink(cluster.ListenAddrs()[0]),
		Extra: fmt.Sprintf("admin: {listen: %q, peers: [{url: 'http://%s'}]}", listen, testkit.FreeAddress(t)),
	})
	r.Start(t)
	testkit.Must(t, table.Insert(t.Context(), table.DB, relay.Row{BizType: "order", Key: "a", Topic: "nowhere", Body: []byte("x")}))
	testkit.Exec(t, table.DB, "INSERT INTO "+table.FullName()+" (biz_type, biz_key, topic, message_body, status, fail_reason) VALUES ('order', 'failed before', 'orders', 'x', 3, '太大')")

	tab.run(chromedp.Navigate("http://" + listen + "/"))
	tab.shows("#state", "degraded")
	tab.shows("#language", "中文")
	tab.run(chromedp.Click("#language"))
	tab.holds("the page to be Chinese", `document.documentElement?.lang === "zh-CN" && document.querySelector("#h-rows")?.textContent === "各状态的行"`)
	tab.shows("#problems", "topic nowhere 已挂起，它的行在等待：")
	tab.shows("#problems", "表 "+table.FullName()+" 有 1 行为 FAILED")
	tab.shows("#keys-box", "等待的 key")
	tab.holds("the problem to lead to the Chinese handbook", `document.querySelector("#problems a").getAttribute("href").startsWith("docs/zh/broker#")`)
	tab.holds("the problem to lead to its messages", `document.querySelector("#problems a[href^='#messages']").href.includes("status=failed")`)
	for _, view := range []string{"messages", "checkpoint", "relays", "overview"} {
		tab.run(chromedp.Click("#nav-" + view))
		tab.holds("the view "+view, fmt.Sprintf("!document.querySelector('#view-%s').hidden", view))
		tab.silent("English in the view "+view, english)
	}
	tab.looksRight()
	tab.run(chromedp.Click(`#problems a[href^="docs/zh/broker"]`))
	tab.holds("the handbook to open at the section", `document.querySelector(":target")?.tagName === "H2" && /[\u4e00-\u9fff]/.test(document.querySelector(":target").textContent)`)
	tab.run(chromedp.NavigateBack())
	tab.shows("#language", "English")
	tab.run(chromedp.Click("#language"))
	tab.holds("the page to be English again", `document.documentElement?.lang === "en" && document.querySelector("#h-rows")?.textContent === "Rows by state"`)
	tab.check(listen)
}
