package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/examples/orders/consumers"
	"github.com/canal-outbox/canal-outbox/examples/orders/shop"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

var update = flag.Bool("update", false, "write the picture into docs/examples/orders.md")

// picture is the sequence of one order, with the names in the code.
func picture() string {
	var b strings.Builder
	step := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	step("```mermaid")
	step("sequenceDiagram")
	for _, who := range []string{
		"C as customer", "S as shop", "R as Redis", "D as database", "O as canal-outbox", "B as broker", "K as consumers", "T as timeout",
	} {
		step("  participant %s", who)
	}
	step("  C->>S: order (its number is the token)")
	step("  S->>R: reserve (script)")
	step("  S->>D: one transaction: t_order, %s, %s with its due time", shop.Created, shop.Timeout)
	step("  S->>R: placed")
	step("  D-->>O: binlog")
	step("  O->>B: %s to %s", shop.Created, shop.Topic)
	step("  O->>D: SENT")
	step("  B->>K: stock: locked + quantity")
	step("  alt paid in time")
	step("    C->>S: payment")
	step("    S->>D: one transaction: status 0 to 1, %s", shop.Settled)
	step("    O->>B: %s to %s", shop.Settled, shop.Topic)
	step("    B->>K: stock: locked to sold, points, coupon, notification")
	step("  else not paid when %s is due", shop.Timeout)
	step("    O->>B: %s to %s", shop.Timeout, shop.TimeoutTopic)
	step("    B->>T: %s", shop.Timeout)
	step("    T->>D: one transaction: status 0 to 2, %s", shop.Closed)
	step("    O->>B: %s to %s", shop.Closed, shop.Topic)
	step("    B->>K: stock: locked - quantity, notification")
	step("    K->>R: release (script)")
	step("  end")
	step("  opt a consumer refuses a message three times")
	step("    K->>B: letter to %s", consumers.DeadTopic)
	step("    Note over B,K: orders letters list, send-back (through %s), discard", consumers.RetryTopic)
	step("  end")
	step("```")
	return b.String()
}

// The page's picture matches the code.
func TestThePicture(t *testing.T) {
	const page, begin, end = "../../docs/examples/orders.md", "TestThePicture -update -->\n", "<!-- end of the picture -->"
	text, err := os.ReadFile(page)
	testkit.Must(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the picture", page)
	}
	want := before + begin + picture() + end + after
	if *update {
		testkit.Must(t, os.WriteFile(page, []byte(want), 0o644))
	} else if want != string(text) {
		t.Errorf("the picture in %s is not current: go test ./examples/orders -run TestThePicture -update", page)
	}
}
