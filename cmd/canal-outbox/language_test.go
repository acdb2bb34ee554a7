package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"github.com/canal-outbox/canal-outbox/internal/adopt"
	"github.com/canal-outbox/canal-outbox/internal/translate"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("LC_ALL", "C"); err != nil { // texts are compared in English
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // a client library starts one when it is linked in
}

// With a Chinese locale status is Chinese, its columns are aligned, and the exit codes, JSON and what scripts read are as in English.
func TestStatusInChinese(t *testing.T) {
	file, dir := configure(t)
	start(t, dir)
	english := run("", "status", "-c", file, "-o", "json")
	t.Setenv("LC_ALL", "zh_CN.UTF-8")
	got := run("", "status", "-c", file)
	if got.code != exitProblems {
		t.Errorf("%+v", got)
	}
	golden(t, "status.zh.text", got.out)
	column := 0
	for line := range strings.Lines(got.out) {
		label := strings.SplitN(strings.TrimLeft(line, " "), "  ", 2)[0]
		at := cells(line[:strings.Index(line, label)+len(label)])
		rest := line[strings.Index(line, label)+len(label):]
		at += len(rest) - len(strings.TrimLeft(rest, " "))
		if column != 0 && at != column {
			t.Errorf("column %d instead of %d: %s", at, column, line)
		}
		column = at
	}
	if got := run("", "status", "-c", file, "-o", "json"); got != english {
		t.Errorf("%+v\n%+v", got, english)
	}
	if got := run("", "status", "-c", file, "--live"); got.code != exitOK || got.out != "relay 能够继续工作\n" {
		t.Errorf("%+v", got)
	}
	if got := run("", "status", "-c", file, "--live", "-o", "json"); !json.Valid([]byte(got.out)) || !strings.Contains(got.out, "can make progress") {
		t.Errorf("%+v", got)
	}
}

// cells is how many columns of a terminal a text takes.
func cells(text string) (n int) {
	for _, r := range text {
		n++
		if unicode.Is(unicode.Han, r) {
			n++
		}
	}
	return n
}

func TestDoctorAndInitInChinese(t *testing.T) {
	result := &adopt.Result{
		Config: "/etc/canal-outbox/canal-outbox.yaml", SQL: "/etc/canal-outbox/canal-outbox.sql", Statements: []string{"GRANT SELECT ON a TO b;"}, CheckedAs: "root",
		Findings: []server.Finding{
			{Severity: server.OK, Subject: "sink", What: "the broker answers"},
			{Severity: server.NotChecked, Subject: "checkpoint", What: "needs REPLICATION CLIENT: whether the log still has the checkpoint (Error 1227)"},
			{Severity: server.Fault, Subject: "source", What: "dial tcp: refused", Fix: "check source.address, that the server runs and that no firewall is between"},
			{Severity: server.Warning, Subject: "shop.t.at", What: "it keeps no milliseconds: claims of two processes within one second look alike", Fix: "ALTER TABLE a", SQL: "ALTER TABLE a"},
		},
		Next: []string{"canal-outbox run"},
	}
	var out bytes.Buffer
	c := &cli{out: &out, format: formatText, words: translate.Chinese()}
	if err := c.showInit(result); err != nil {
		t.Fatal(err)
	}
	golden(t, "init.zh.text", out.String())
}
