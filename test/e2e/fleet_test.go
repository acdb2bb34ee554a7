package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// P10: the page shows 50 other relays, those with problems first, and finds some of them.
func TestP10_PageOfFiftyRelays(t *testing.T) {
	t.Parallel()
	tab := newTab(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	testkit.Must(t, err)
	t.Cleanup(cluster.Close)
	db := testkit.SharedDatabase(t, testkit.MariaDB)
	schema := db.CreateSchema(t)
	table := relay.NewTable(t, db.Connect(t, schema), schema, "t_local_message")
	listen := testkit.FreeAddress(t)

	answer := make(chan operator.Status, 1) // what the real relay says of itself; the others vary it
	others := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/shop-"), "/")
		n, err := strconv.Atoi(name)
		if err != nil || n == 7 {
			http.Error(w, "it is away", http.StatusBadGateway)
			return
		}
		s := <-answer
		answer <- s
		lag := float64(n) / 10
		s.Source.LagSeconds, s.Throughput.Rate = &lag, 10
		if n == 31 {
			s.State, s.Problems = "stuck", []string{"the reader is stuck at an event"}
		}
		_ = json.NewEncoder(w).Encode(s) // without its answer the line is not as expected
	}))
	t.Cleanup(others.Close)
	var peers []string
	for n := range 50 {
		peers = append(peers, fmt.Sprintf("{url: '%s/shop-%d'}", others.URL, n))
	}
	r := relay.New(t, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{table}, Sink: relay.KafkaSink(cluster.ListenAddrs()[0]),
		Extra: fmt.Sprintf("admin: {listen: %q, peers: [%s]}", listen, strings.Join(peers, ", ")),
	})
	r.Start(t)
	r.AwaitConnected(t)
	status, err := r.Status()
	testkit.Must(t, err)
	answer <- status

	tab.run(chromedp.Navigate("http://" + listen + "/"))
	tab.shows("#state", "working")
	tab.run(chromedp.Click("#nav-relays"))
	const lines = `[...document.querySelectorAll("#r-rows tr")]`
	tab.holds("a line for each relay", lines+".length === 51")
	tab.holds("the relay without an answer to be first, then the one that is stuck, then by lag",
		lines+`.slice(0, 3).map(r => /shop-(\d+)/.exec(r.textContent)[1]).join() === "7,31,49"`)
	tab.shows("#r-total", "51 relays, 2 with problems; 490/s published")
	tab.run(chromedp.SendKeys("#r-filter", "Shop-4"))
	tab.holds("the filter to leave eleven", lines+".length === 11")
	tab.shows("#r-total", "11 of 51 relays, 0 with problems")
	tab.run(chromedp.SendKeys("#r-filter", " nothing"))
	tab.holds("the filter to leave none", lines+".length === 0")
	var took float64
	tab.run(chromedp.Reload(), chromedp.Evaluate(`performance.getEntriesByType("navigation")[0].loadEventEnd`, &took))
	t.Logf("the page was loaded after %.0f ms", took)
	tab.check(listen)
}
