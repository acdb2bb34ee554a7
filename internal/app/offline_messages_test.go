package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/checkpoint"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/sink/kafka"
)

// A retry of many rows without a running relay is in the list of changes, with its filter, its caller and the number of rows.
func TestG51_ARetryWithoutARelayIsRecorded(t *testing.T) {
	db := testkit.SharedDatabase(t, testkit.Flavors()[0])
	cfg := source(t, db, "retrier", relayGrants)
	var values []string
	for i := range 1200 {
		values = append(values, fmt.Sprintf("('o', 'k%d', 't', 'x', 3)", i))
	}
	testkit.Exec(t, db.Root(), "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body, status) VALUES "+strings.Join(values, ","))
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Close())
	m, err := OpenOffline(t.Context(), cfg, false)
	testkit.Must(t, err)
	ctx := operator.WithCaller(t.Context(), "unix user root, login alice")
	change, err := m.RetryMessages(ctx, operator.MessageOrder{Filter: &operator.MessageFilter{Type: "o"}, Limit: 1000})
	testkit.Must(t, err)
	testkit.Must(t, m.Close())
	o, err := OpenOffline(t.Context(), cfg, true)
	testkit.Must(t, err)
	all, err := o.Audit(ctx, 10)
	testkit.Must(t, err)
	testkit.Must(t, o.Close())
	if change.Changed != 1000 || len(all) != 1 {
		t.Fatalf("%d rows were changed; recorded: %+v", change.Changed, all)
	}
	c := all[0]
	if c.Unfinished || c.By != "unix user root, login alice" || !strings.Contains(c.What, `"type":"o"`) || !strings.HasPrefix(c.Before, "1000 rows of") || !strings.HasPrefix(c.After, "1000 of 1000 rows") {
		t.Errorf("%+v", c)
	}
}

// With exactly_once a running relay records it in Kafka before rows are set back; without one nothing is changed.
func TestP3_ARetryWithExactlyOnceNeedsARelay(t *testing.T) {
	db := testkit.SharedDatabase(t, testkit.Flavors()[0])
	cfg := source(t, db, "exactly", relayGrants)
	section := kafka.NewSection()
	section.Brokers, section.ExactlyOnce = []string{"127.0.0.1:1"}, true
	cfg.Sink = config.Use("kafka", section)
	testkit.Exec(t, db.Root(), "INSERT INTO "+cfg.Tables[0].Name+" (biz_type, biz_key, topic, message_body, status) VALUES ('o', 'k', 't', 'x', 3)")
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Close())
	m, err := OpenOffline(t.Context(), cfg, false)
	testkit.Must(t, err)
	change, err := m.RetryMessages(t.Context(), operator.MessageOrder{Filter: &operator.MessageFilter{Type: "o"}, Limit: 10})
	if err == nil || !strings.Contains(err.Error(), "exactly_once") || change.Changed != 0 {
		t.Errorf("%+v, %v", change, err)
	}
	testkit.Must(t, m.Close())
}

// After a kill the journal may still have rows that their table shows as SENT. One that is set back then leaves it, or the next start would show it
// as SENT again.
func TestP3_ARetryWithoutARelayLeavesTheJournal(t *testing.T) {
	db := testkit.SharedDatabase(t, testkit.Flavors()[0])
	cfg := source(t, db, "journalled", relayGrants)
	name := cfg.Tables[0].Name
	testkit.Exec(t, db.Root(), "INSERT INTO "+name+" (biz_type, biz_key, topic, message_body, status) VALUES ('o', 'k', 't', 'x', 3), ('p', 'k', 't', 'x', 3)")
	state, err := checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	testkit.Must(t, state.Close())
	m, err := OpenOffline(t.Context(), cfg, false)
	testkit.Must(t, err)
	page, err := m.ListMessages(t.Context(), operator.MessageQuery{Limit: 10})
	testkit.Must(t, err)
	sent := map[string]outbox.Identity{} // by type
	for _, r := range page.Messages {
		sent[r.Type] = outbox.Identity{Table: r.Table, ID: r.ID, MessageID: r.MessageID}
		testkit.Must(t, m.state.Commit([]outbox.Completion{{Identity: sent[r.Type], Action: outbox.ActionMarkSent}}, nil, nil, 0))
	}
	change, err := m.RetryMessages(t.Context(), operator.MessageOrder{Filter: &operator.MessageFilter{Type: "o"}, Limit: 10})
	testkit.Must(t, err)
	testkit.Must(t, m.Close())
	state, err = checkpoint.Open(cfg.Checkpoint.Dir, checkpoint.Options{})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, state.Close()) }()
	left, err := state.Journal()
	testkit.Must(t, err)
	if change.Changed != 1 || len(left) != 1 || left[0].Identity != sent["p"] {
		t.Errorf("%d are set back, the journal has %v", change.Changed, left)
	}
}
