package e2e

import (
	"context"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// A05: the relay is started before the server is: it says so, waits, and works when the server is there.
func TestA05_ServerDownAtStart(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Durable: true}))
		l.start()
		l.commit("before")
		l.account("before")
		l.stop()
		l.commit("missed")
		testkit.Must(t, l.db.Kill())
		l.launch(app.Options{})
		waiting := func() int { return l.logs.FilterMessageSnippet("waiting for it").Len() }
		l.wait("a word on it", func() bool { return waiting() == 1 })
		l.stop() // ends a wait in order as well
		l.launch(app.Options{})
		l.wait("a word on it", func() bool { return waiting() == 1 })
		testkit.Must(t, l.db.Start(context.Background()))
		l.reading()
		l.commit("after")
		l.account("before", "missed", "after")
	})
}
