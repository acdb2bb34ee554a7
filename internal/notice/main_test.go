package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheNoticeIsCurrent(t *testing.T) {
	want, err := render(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("NOTICE is not what the modules say: run make generate")
	}
	modules, err := linked(t.Context(), "../..")
	if err != nil || len(modules) < 20 {
		t.Fatalf("%d modules, %v", len(modules), err)
	}
	for _, m := range append(modules, module{Path: dashboard + "/uplot"}) {
		if !strings.Contains(string(got), "\n"+m.Path+"\n") {
			t.Errorf("%s is linked and not listed", m.Path)
		}
	}
}

// A module whose file holds more than the one licence keeps its whole text.
func TestOnlyThePlainApacheTextIsShortened(t *testing.T) {
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if !isApache(string(text)) {
		t.Error("LICENSE is not the text of the Apache License")
	}
	if isApache(string(text) + strings.Repeat("Another licence.\n", 100)) {
		t.Error("a second licence would be dropped")
	}
}
