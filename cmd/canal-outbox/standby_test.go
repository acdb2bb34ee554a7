package main

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// A standby that waits while no other relay is active says why.
func TestStatusOfAStandbySaysWhyItWaits(t *testing.T) {
	why := "a table is new to the lease: waiting up to 10s"
	if text := leaseText(operator.LeaseStatus{State: "standby", Why: why}); !strings.Contains(text, "no active relay is known: "+why) {
		t.Errorf("without an active relay: %s", text)
	}
	if text := leaseText(operator.LeaseStatus{State: "standby", Active: "host-a:/state", Why: "another relay is active"}); strings.Contains(text, "no active") {
		t.Errorf("with an active relay: %s", text)
	}
}
