package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/adopt"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestInitOutput(t *testing.T) {
	const dir = "/etc/canal-outbox/"
	index := server.Finding{Severity: server.Warning, Subject: "shop.t_local_message.last_exec_time", What: "it keeps no milliseconds", Fix: "ALTER TABLE a", SQL: "ALTER TABLE a"}
	open := &adopt.Result{
		Config: dir + "canal-outbox.yaml", PasswordFile: dir + "mysql-password", SQL: dir + "canal-outbox.sql",
		Statements: []string{"CREATE USER IF NOT EXISTS 'canal_outbox'@'%' IDENTIFIED BY '******';", "GRANT SELECT, UPDATE ON `shop`.`t_local_message` TO 'canal_outbox'@'%';"},
		CheckedAs:  "root", Findings: []server.Finding{{Severity: server.OK, Subject: "sink", What: "the broker answers"}, index},
		Next: []string{"mysql --host=db --port=3306 --user=root -p < /etc/canal-outbox/canal-outbox.sql", "canal-outbox doctor", "canal-outbox run"},
	}
	done := *open
	done.Applied, done.CheckedAs, done.Next, done.Findings = true, "canal_outbox", []string{"canal-outbox run"}, done.Findings[:1]
	for name, result := range map[string]*adopt.Result{"init": open, "init-applied": &done} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			c := &cli{out: &out, format: format}
			if err := c.showInit(result); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"."+format, out.String())
		}
	}
}

// Without a terminal what is missing is wrong usage, a wrong answer a failure with its faults, and a file that is there is not replaced.
func TestInitWithoutATerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "canal-outbox.yaml")
	if got := run("", "init", "--out", file); got.code != exitUsage || !strings.Contains(got.err, "--address is missing, and there is no terminal") {
		t.Errorf("%+v", got)
	}
	if got := run("", "init", "-c", file, "--kafka", "a:1", "--stdout"); got.code != exitUsage || !strings.Contains(got.err, "name one of them") {
		t.Errorf("%+v", got)
	}
	t.Setenv("CANAL_OUTBOX_SOURCE_ADDRESS", "127.0.0.1:1")
	got := run("y\n", "init", "--out", file, "--user", "root", "-o", "json")
	var body struct {
		Error failure `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.err), &body); err != nil || got.code != exitFailure || len(body.Error.Faults) != 1 || body.Error.Faults[0].Path != "source.address" ||
		body.Error.Faults[0].Source != "CANAL_OUTBOX_SOURCE_ADDRESS" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run("", "init", "--out", file); got.code != exitRefused || !strings.Contains(got.err, file+" (--out) is there") {
		t.Errorf("%+v", got)
	}
}
