package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/fakekafka"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// The pictures of the dashboard in docs/images: a real relay under a load with an outage, recreated by `make images`.
func TestImages(t *testing.T) {
	dir := os.Getenv("IMAGES")
	if dir == "" {
		t.Skip("IMAGES names no directory")
	}
	length, err := time.ParseDuration(os.Getenv("IMAGES_TIME"))
	testkit.Must(t, err)
	s := newShow(t)
	s.relay.Start(t)
	s.run(t, length)
	s.shoot(t, dir)
}

// show is a relay with something to see.
type show struct {
	relay  *relay.Relay
	table  *relay.Table
	broker *fakekafka.Cluster
	listen string
	rows   int

	poison, missing int
}

func newShow(t *testing.T) *show {
	t.Helper()
	s := &show{broker: fakekafka.New(t, 1, map[string]int{"orders": 4, "payments": 4, "refunds": 2}), listen: testkit.FreeAddress(t)}
	db := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: testkit.MariaDB})
	testkit.Exec(t, db.Connect(t, "mysql"), "CREATE DATABASE shop")
	s.table = relay.NewTable(t, db.Connect(t, "shop"), "shop", "t_local_message")
	s.table.NewLease(t)
	s.relay = relay.New(t, relay.Options{
		Source: db.Addr(), Tables: []*relay.Table{s.table}, Sink: s.broker.Sink(),
		Extra: fmt.Sprintf("admin: {listen: %q}\nretention: {sent: 168h}", s.listen),
	})
	return s
}

// run is a load that comes and goes, with an outage of the broker in the middle, and at its end rows that need a person.
func (s *show) run(t *testing.T, length time.Duration) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	down := false
	for began := time.Now(); time.Since(began) < length; <-tick.C {
		part := time.Since(began).Seconds() / length.Seconds()
		if out := part > .55 && part < .62; out != down {
			if down = out; down {
				s.broker.Stop()
			} else {
				testkit.Must(t, s.broker.Start())
			}
		}
		for range int(6 + 5*math.Sin(part*14) + 3*math.Sin(part*61)) {
			s.insert(t, "order.paid", []string{"orders", "orders", "payments", "refunds"}[s.rows%4], fmt.Sprintf("{\"order\":%d,\"amount\":%d}", s.rows, 100+s.rows%900))
		}
		switch {
		case part > .8 && s.poison < 3:
			s.poison++
			s.insert(t, "order.paid", "orders!", `{"order":"a topic that no broker takes"}`)
		case part > .85 && s.missing < 4:
			s.missing++
			s.insert(t, "invoice.made", "invoices", `{"invoice":1}`)
		}
	}
}

func (s *show) insert(t *testing.T, kind, topic, body string) {
	t.Helper()
	s.rows++
	testkit.Must(t, s.table.Insert(t.Context(), s.table.DB, relay.Row{BizType: kind, Key: fmt.Sprintf("A-%05d", s.rows), Topic: topic, Body: []byte(body)}))
}

// shoot takes the pictures.
func (s *show) shoot(t *testing.T, dir string) {
	t.Helper()
	tab := newTab(t)
	media := func(scheme string) {
		tab.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	}
	picture := func(name string) {
		t.Helper()
		tab.run(chromedp.Evaluate("scrollTo(0, 0)", nil), chromedp.Sleep(time.Second)) // what is drawn after a change of size comes with the next status
		var shot []byte
		tab.run(chromedp.FullScreenshot(&shot, 100))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name+".png"), small(t, shot), 0o644))
	}
	media("light")
	tab.run(chromedp.EmulateViewport(1280, 900), chromedp.Navigate("http://"+s.listen+"/"))
	tab.shows("#state", "degraded")
	tab.shows("#topics", "its rows wait")
	tab.holds("the charts to have their points", `[...document.querySelectorAll(".chart")].every(c => c.dataset.points > 10)`)
	picture("overview")
	tab.run(chromedp.Click("#nav-messages"))
	tab.shows("#m-rows", "orders!")
	picture("messages")
	tab.run(chromedp.Click("#m-rows a"))
	tab.shows("#m-one .trace", "inserted")
	picture("trace")
	tab.run(chromedp.Click("#nav-overview"))
	media("dark")
	picture("overview-dark")
	tab.run(chromedp.EmulateViewport(360, 740))
	picture("overview-narrow")
}

// small is a picture with 256 colours, which is a third of the size and looks the same: the page has few. A colour that is close to a commoner
// one gives way to a rare one that is like no other, such as that of a line in a legend.
func small(t *testing.T, data []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	testkit.Must(t, err)
	box, counts := full.Bounds(), map[color.Color]int{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	var chosen color.Palette
	for _, c := range colours {
		if len(chosen) < 256 && !slices.ContainsFunc(chosen, func(other color.Color) bool { return near(c, other) }) {
			chosen = append(chosen, c)
		}
	}
	few := image.NewPaletted(box, chosen)
	draw.Draw(few, box, full, box.Min, draw.Src)
	var out bytes.Buffer
	testkit.Must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few))
	return out.Bytes()
}

// near reports whether the difference is invisible.
func near(a, b color.Color) bool {
	const least = 8 << 8 // in one channel of 16 bits
	ar, ag, ab, _ := a.RGBA()
	br, bg, bb, _ := b.RGBA()
	return max(ar, br)-min(ar, br) < least && max(ag, bg)-min(ag, bg) < least && max(ab, bb)-min(ab, bb) < least
}
