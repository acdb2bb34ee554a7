package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// One relay serves the 64 tables that a pattern names, on one stream. Tables that appear while it runs are served too, and one that
// vanishes harms no other; a table with the wrong layout is reported, and the relay continues without it; a start is refused.
func TestShardsByAPattern(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), frequentSweeps)
		for n := range 64 {
			l.exec(fmt.Sprintf("CREATE TABLE shard_%02d LIKE t_local_message", n))
		}
		l.Edit(t, l.schema()+".t_local_message", l.schema()+".shard_{00..99}")

		l.Start(t)
		var want []string
		insert := func(tables ...int) {
			for _, n := range tables {
				key := fmt.Sprintf("%d-%d", n, len(want))
				l.exec(fmt.Sprintf("INSERT INTO shard_%02d (biz_type, biz_key, topic, message_body) VALUES ('order', ?, ?, 'x')", n), key, topics[0])
				want = append(want, "order:"+key)
			}
			l.wait(fmt.Sprintf("%d messages", len(want)), func() bool { return len(relay.ReadAll(t, l.broker, topics[0])) >= len(want) })
		}
		all := make([]int, 64)
		for n := range all {
			all[n] = n
		}
		insert(all...)

		l.exec("CREATE TABLE shard_64 LIKE t_local_message")
		insert(64, 3, 64)
		l.exec("DROP TABLE shard_03")
		insert(4)
		l.wait("the table that vanished to be forgotten", func() bool {
			s, err := l.Status()
			log := l.LogTail(60)
			last := log[max(0, strings.LastIndex(log, "\tstarted\t")):]
			return err == nil && len(s.Tables) == 64 && strings.Contains(last, `"tables": 64`) // the relay has started again
		})
		insert(64, 5)
		l.exec("CREATE TABLE shard_65 (id BIGINT PRIMARY KEY)")
		l.wait("the wrong table to be reported", func() bool { return strings.Contains(l.LogTail(20), "could not start with it") })
		insert(6, 64)
		l.Stop(t)
		if _, report, code := l.Command(t, "run"); code != 1 || !strings.Contains(report, "cannot start, nothing was written:\n  "+l.schema()+".shard_65") {
			t.Errorf("with a wrong table a start ends with %d: %s", code, report)
		}
		l.exec("DROP TABLE shard_65")
		l.Start(t)
		l.exec("CREATE TABLE shard_65 (id BIGINT PRIMARY KEY)")
		l.exec("CREATE TABLE shard_66 LIKE t_local_message")
		l.wait("a correct table to wait for the wrong one", func() bool {
			log := l.LogTail(20)
			last := log[max(0, strings.LastIndex(log, "could not start with it")):]
			return strings.Contains(last, "shard_66") && !strings.Contains(last, "starting again")
		})
		l.exec("DROP TABLE shard_65")
		l.exec("CREATE TABLE shard_65 LIKE t_local_message") // an operator has repaired it
		insert(65, 66, 6)

		var got []string
		for _, r := range relay.ReadAll(t, l.broker, topics[0]) {
			got = append(got, r.MessageID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		l.stopInTime()
	})
}

// Each table that a pattern matches gets the tables that its old rows move to; the others are there.
func TestMigrateMakesWhatShardsNeed(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newStage(t, testkit.SharedDatabase(t, flavor), fake(t), "retention: {archive: 168h, failed: 720h}\n")
		pattern := func(name string) {
			text, err := os.ReadFile(l.Config())
			testkit.Must(t, err)
			config := regexp.MustCompile(`name: "[^"]*"`).ReplaceAllString(string(text), `name: "`+l.schema()+"."+name+`"`)
			testkit.Must(t, os.WriteFile(l.Config(), []byte(config), 0o600))
		}
		pattern("shard_{00..63}")
		if out, errOut, code := l.Command(t, "migrate"); code != 2 || !strings.Contains(errOut, "matches no table") {
			t.Errorf("without a table: exit %d, %s%s", code, out, errOut)
		}
		for n := range 3 {
			l.exec(fmt.Sprintf("CREATE TABLE shard_%02d LIKE t_local_message", n))
		}
		for range 2 { // the second time all is there
			if out, errOut, code := l.Command(t, "migrate"); code != 0 {
				t.Fatalf("exit %d, %s%s", code, out, errOut)
			}
		}
		made := l.number("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND (TABLE_NAME LIKE 'shard%archive' "+
			"OR TABLE_NAME LIKE 'shard%failed' OR TABLE_NAME = 'canal_outbox_lease')", l.schema())
		if made != 7 {
			t.Errorf("%d tables were made", made)
		}
		if out, _, code := l.Command(t, "migrate", "--print"); code != 0 || strings.Count(out, "_archive is there") != 3 || strings.Contains(out, "shard_00` (") {
			t.Errorf("exit %d, %s", code, out)
		}
	})
}

func (l *stage) schema() string { return l.table.Schema }
