package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/producer"
	"github.com/canal-outbox/canal-outbox/test/layouts"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// What package producer inserts into any layout is published: each message of a committed transaction once, by the log alone,
// under the message id that was returned; none of a transaction that was rolled back.
func TestWhatTheProducerInsertsIsPublished(t *testing.T) {
	const batch = 20
	presets := map[string]producer.Preset{
		"A": producer.TLocalMessage, "A2": producer.TLocalMessage2, "B": producer.MessageState, "C": producer.LocalMessageTable,
		"D": producer.LocalMessage, "E": producer.OrderChain,
	}
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		cluster := fake(t)
		l := newEveryLayout(t, testkit.SharedDatabase(t, flavor), cluster, layouts.All()...)
		l.Start(t)
		var ids []string
		for _, layout := range l.all {
			options := producer.Options{Table: l.schema() + "." + layout.Table}
			if layout.Name == "B" {
				options.Pending = layout.Codes["pending"]
			}
			messages, err := producer.New(presets[layout.Name], options)
			testkit.Must(t, err)
			var list []producer.Message
			for n := range batch {
				m := producer.Message{BizType: "order", Key: fmt.Sprint(layout.Name, n), Topic: topics[0], Body: fmt.Append(nil, n)}
				switch layout.Name {
				case "B":
					m.ID = int64(n + 1)
				case "C":
					m.BizType = ""
				case "D":
					m.BizType = topics[0]
				}
				list = append(list, m)
			}
			for _, end := range []string{"ROLLBACK", "COMMIT"} {
				tx, err := l.sql.BeginTx(t.Context(), nil)
				testkit.Must(t, err)
				returned, err := messages.InsertAll(t.Context(), tx, list)
				testkit.Must(t, err)
				if end == "ROLLBACK" {
					testkit.Must(t, tx.Rollback())
					continue
				}
				testkit.Must(t, tx.Commit())
				ids = append(ids, returned...)
			}
		}
		for _, layout := range l.all {
			l.wait("the rows of "+layout.Name+" to be sent", func() bool {
				var n int
				query := fmt.Sprintf("SELECT COUNT(*) FROM `%s` WHERE %s = '%s'", layout.Table, layout.Status, layout.Codes["sent"])
				testkit.Must(t, l.sql.QueryRow(query).Scan(&n))
				return n == batch
			})
		}
		var published []string
		for _, r := range relay.ReadAll(t, cluster, topics[0]) {
			published = append(published, r.MessageID)
		}
		slices.Sort(ids)
		slices.Sort(published)
		if !slices.Equal(ids, published) {
			t.Errorf("inserted %q\npublished %q", ids, published)
		}
		if paths := l.metricBy("messages_total", "path"); paths["sweep"] != 0 {
			t.Errorf("they went by %v", paths)
		}
		l.stopInTime()
	})
}
