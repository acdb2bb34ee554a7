package adopt

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// The configuration is valid, and says what the golden files say.
func TestConfiguration(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "mysql-password")
	if err := os.WriteFile(secret, []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]content{
		"kafka": {
			address: "db.internal:3306", server: "MySQL 9.7.0", user: "canal_outbox", passwordFile: secret, sqlFile: "/etc/canal-outbox/canal-outbox.sql",
			table: entry{name: "shop.t_local_message", preset: "t_local_message"}, kind: "kafka", servers: []string{"kafka-1:9092", "10.0.0.8:9092"}, state: "/var/lib/canal-outbox",
		},
		"words": {
			address: "/run/mysqld/mysqld.sock", server: "MariaDB 10.11.19", user: "relay", environment: true,
			table: entry{
				name: "shop_*.message_{00..63}", preset: "message-state", codes: map[string]string{"pending": "待发送", "sent": "已发送", "suspended": "no"}, unseen: []string{"failed"},
			},
			kind: "rocketmq", servers: []string{"10.0.0.5:9876"}, state: "/var/lib/canal outbox",
		},
		"guessed": {
			address: "127.0.0.1:3306", server: "MySQL 8.0.31", user: `re"l\ay`, passwordFile: secret, sqlFile: "/etc/canal-outbox/canal-outbox.sql",
			table: entry{
				name: "shop.mq_send", preset: "outbox", guessed: true, topic: "order.{event_type}", columns: map[string]string{"id": "seq", "body": "request", "tag": ""},
				codes: map[string]string{"pending": "0", "sending": "", "sent": "1", "failed": ""},
			},
			kind: "stdout", state: "/var/lib/canal-outbox",
		},
	} {
		text := c.render()
		cfg, _, err := config.Parse(name, []byte(text), []string{"CANAL_OUTBOX_SOURCE_PASSWORD=x"}, app.Sinks)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		if cfg.Source.Address != c.address || cfg.Source.User != c.user || cfg.Tables[0].Name != c.table.name || cfg.Checkpoint.Dir != c.state || cfg.Sink.Kind() != c.kind ||
			fmt.Sprint(cfg.Tables[0].Codes) != fmt.Sprint(c.table.codes) || fmt.Sprint(cfg.Tables[0].Columns) != fmt.Sprint(c.table.columns) || cfg.Tables[0].Topic.Template != c.table.topic {
			t.Errorf("%s: read as %+v\n%s", name, cfg, text)
		}
		golden(t, name+".yaml", strings.ReplaceAll(text, secret, "/etc/canal-outbox/mysql-password"))
	}
}

// The statements for an account that does not exist, in the words of each server.
func TestStatements(t *testing.T) {
	ddl, err := migrations.DDL("lease", "shop.canal_outbox_lease")
	if err != nil {
		t.Fatal(err)
	}
	ddl = "CREATE TABLE IF NOT EXISTS `shop`.`canal_outbox_lease` (...)" + ddl[strings.LastIndexByte(strings.TrimSpace(ddl), ')')+1:] // its columns may change
	for _, one := range []struct {
		flavor              outbox.Flavor
		major, minor, patch int
		ddl                 string
	}{
		{outbox.MySQL, 5, 7, 44, ddl}, {outbox.MySQL, 8, 0, 31, ddl}, {outbox.MySQL, 9, 7, 4, ""}, {outbox.MariaDB, 10, 4, 34, ddl}, {outbox.MariaDB, 10, 11, 19, ddl},
	} {
		info := server.Info{ID: server.ID{Flavor: one.flavor}, Major: one.major, Minor: one.minor, Patch: one.patch}
		version := fmt.Sprintf("%s %d.%d.%d", one.flavor, one.major, one.minor, one.patch)
		s := &setup{
			Answers: Answers{Address: "db.internal:3306", Files: Files{Config: "/etc/canal-outbox/canal-outbox.yaml"}},
			account: account{name: "canal'outbox", host: "10.0.%", password: setting.NewSecret(`se'cr\et`)}, content: content{server: serverFacts{info: info}.String()},
		}
		table := server.Probe{Privileges: "SELECT, UPDATE", On: "`shop`.`t_local_message`"}
		index := statement{"The index.", "ALTER TABLE `shop`.`t_local_message` ADD INDEX i (status), ALGORITHM=INPLACE, LOCK=NONE"}
		s.sql = statementsFor(s.account, info, []statement{index}, []server.Probe{table, table}, "`shop`.`canal_outbox_lease`", one.ddl)
		golden(t, strings.ReplaceAll(version, " ", "-")+".sql", s.script())
		for _, text := range append(s.statements(), s.masked(s.script())) {
			if strings.Contains(text, "se'") || strings.Contains(text, "cr\\") || strings.Contains(text, "cr\\\\") {
				t.Errorf("the password is shown: %s", text)
			}
		}
	}
}
