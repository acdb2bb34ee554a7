package doctor

import (
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestG45_GrantsComeAfterWhatTheyAreOn(t *testing.T) {
	got := Statements([]server.Finding{
		{SQL: "GRANT SELECT ON `s`.`t_failed` TO 'r'@'%'", Fix: "the same"},
		{Fix: "only words"},
		{SQL: "CREATE TABLE `t_failed` LIKE `t`;\nALTER TABLE `t_failed`\n  ADD COLUMN x INT;"},
		{SQL: "GRANT SELECT ON `s`.`t_failed` TO 'r'@'%'"},
	})
	want := []string{"CREATE TABLE `t_failed` LIKE `t`;", "ALTER TABLE `t_failed`\n  ADD COLUMN x INT;", "GRANT SELECT ON `s`.`t_failed` TO 'r'@'%';"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Before there are rows, doctor checks the topics that the configuration names.
func TestG45_TopicsOfTheConfiguration(t *testing.T) {
	rule := func(text string) *table.TopicRule {
		r, err := table.ParseTopic(text)
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	cfg := config.Default()
	cfg.Retry.Topics = map[string]config.Attempts{"slow": {}, "orders": {}}
	d := &doctor{cfg: &cfg, topics: []string{"seen", "orders"}, Parts: Parts{Mappings: []table.Mapping{
		{Topic: rule("constant")},
		{Topic: rule("order.{event_type}")},
		{},
		{Topic: &table.TopicRule{Column: "c", Topics: map[string]string{"PAID": "paid"}, Default: "other"}},
	}}}
	d.configured()
	if want := []string{"seen", "orders", "constant", "other", "paid", "slow"}; !slices.Equal(d.topics, want) {
		t.Errorf("%q, want %q", d.topics, want)
	}
}
