package main

import (
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

func TestThePageIsCurrent(t *testing.T) {
	want, err := render("../../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatal("docs/configuration.md is not what the structs say: run go generate ./internal/app")
	}
}

func TestEveryKeyHasAMeaning(t *testing.T) {
	page, err := render("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "| `") && strings.HasSuffix(line, "|  |") {
			t.Errorf("no comment: %s", line)
		}
	}
	for _, name := range table.Presets() {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("preset %s is missing", name)
		}
	}
	if !strings.Contains(string(page), "`sink.kafka.sasl.password_file`") {
		t.Error("a nested key is missing")
	}
}
