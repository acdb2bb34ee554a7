package canal

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

func TestReadsInsertsInCommitOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.start(l.end())
		l.insert("a")
		l.insert("b")
		tx, err := l.sql.Begin()
		testkit.Must(t, err)
		for _, key := range []string{"c", "d"} {
			_, err = tx.Exec(insertRow, key, "x")
			testkit.Must(t, err)
		}
		testkit.Must(t, tx.Commit())
		if got := joined(l.published(4)); got != "a,b,c,d" {
			t.Fatalf("published %s", got)
		}
		m := l.rec.sent()[0]
		if m.Topic != "orders" || string(m.Body) != "body of a" || m.MessageID != "order:a" || m.Status != outbox.Pending ||
			m.CommittedAt.IsZero() || m.ReceivedAt.IsZero() || m.Path != outbox.PathBinlog {
			t.Fatalf("message %+v", m)
		}
		l.caughtUp()
	})
}
