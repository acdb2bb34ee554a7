package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

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
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-quic", true), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("force-prefers-reduced-motion", true)) // a colour on its way is neither the one nor the other
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
		// The script of Debian for the first program keeps running next to the browser, and would be ended in its place.
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

// holds waits until an expression of the page is true. While the browser replaces the page, an expression fails: that is "not yet".
func (b *tab) holds(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var page string
	for {
		var truth bool
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, &truth))
		if err == nil && truth {
			return
		}
		_ = chromedp.Run(ctx, chromedp.Evaluate(`document.querySelector("body main")?.innerHTML ?? ""`, &page)) // what a failure shows
		select {
		case <-ctx.Done():
			b.t.Fatalf("%s: false (%v); the page shows:\n%s", what, err, page)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *tab) shows(element, text string) {
	b.t.Helper()
	b.holds(element+" to show "+text, fmt.Sprintf("(document.querySelector(%q)?.textContent ?? '').includes(%q)", element, text))
}

// click clicks until an element shows a text: while lines come and go above a button, the first click may miss it.
func (b *tab) click(button, element, text string) {
	b.t.Helper()
	testkit.WaitFor(b.t, patience, "a click on "+button+" to have "+element+" show "+text, func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
		defer cancel()
		_ = chromedp.Run(ctx, chromedp.Click(button)) // the button goes when the click before has worked
		var shown bool
		for !shown && ctx.Err() == nil {
			_ = chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).textContent.includes(%q)", element, text), &shown), chromedp.Sleep(100*time.Millisecond))
		}
		return shown
	})
}

func (b *tab) hidden(element string) {
	b.t.Helper()
	b.holds(element+" to be hidden", fmt.Sprintf("document.querySelector(%q).hidden", element))
}

// looksRight checks what a sighted tester would, by what the browser has computed: nothing is wider than a narrow screen, texts
// have contrast in both schemes, and whatever can be used has a name and can be reached with the keyboard.
func (b *tab) looksRight() {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(360, 740))
	b.holds("no part is wider than a narrow screen", `document.documentElement.scrollWidth <= innerWidth`)
	for _, scheme := range []string{"light", "dark"} {
		b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		b.silent("a text has too little contrast in the scheme "+scheme, faint)
	}
	b.run(emulation.SetEmulatedMedia(), chromedp.EmulateViewport(1280, 900))
	b.silent("something that can be used has no name or cannot be reached", unnamed)
}

// silent wants an expression of the page to find nothing.
func (b *tab) silent(what, expression string) {
	b.t.Helper()
	var found []string
	b.run(chromedp.Evaluate(expression, &found))
	for _, f := range found {
		b.t.Errorf("%s: %s", what, f)
	}
}

// faint lists texts whose contrast with the colour behind them is below 4.5 (WCAG 2.2, 1.4.3).
const faint = `(() => {
	const parts = c => (c.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
	const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
	const found = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (!e.checkVisibility() || e.closest(".spoken, dialog:not([open])") || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.disabled) continue;
		const a = light(parts(getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (ratio < 4.5) found.add(e.tagName + "." + e.className + " " + ratio.toFixed(1) + ": " + e.textContent.trim().slice(0, 40));
	}
	return [...found];
})()`

// unnamed lists controls without an accessible name, ids that are there twice, and labels that lead nowhere.
const unnamed = `(() => {
	const found = [], ids = new Set();
	for (const e of document.querySelectorAll("[id]")) { if (ids.has(e.id)) found.push("twice: #" + e.id); ids.add(e.id); }
	for (const e of document.querySelectorAll("[aria-labelledby]")) for (const id of e.getAttribute("aria-labelledby").split(" ")) if (!ids.has(id)) found.push("no #" + id);
	for (const e of document.querySelectorAll("button, a, input, select, textarea, summary, [tabindex='0']")) {
		const name = e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || (e.labels && e.labels.length && e.labels[0].textContent.trim());
		if (!name) found.push("no name: " + e.outerHTML.slice(0, 80));
		if (e.tabIndex < 0) found.push("not reached by Tab: " + e.outerHTML.slice(0, 80));
	}
	return found;
})()`
