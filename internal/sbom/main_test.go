package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The test's own binary has modules too.
func TestWrite(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := write(out, []string{"v1.2.3", self}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two documents of one binary differ")
	}
	var doc bom
	if err := json.Unmarshal(first.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if m := doc.Metadata.Component; !strings.HasSuffix(m.URL, "canal-outbox@v1.2.3") || doc.Components[0].Name != "std" {
		t.Errorf("%+v", doc)
	}
}

func TestWriteRefusesWhatIsNoBinary(t *testing.T) {
	for _, words := range [][]string{nil, {"v1"}, {"v1", "main.go"}, {"v1", "nothing"}, {"v1", "a", "b"}} {
		if err := write(new(bytes.Buffer), words); err == nil {
			t.Errorf("%q was taken", words)
		}
	}
}
