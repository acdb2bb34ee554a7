package testkit

import (
	"slices"
	"strings"
	"testing"
)

func TestRelayEnvironment(t *testing.T) {
	t.Setenv("CANAL_OUTBOX_SOURCE_USER", "other")
	t.Setenv("OTHER", "kept")
	got := RelayEnvironment()
	if !slices.Contains(got, "OTHER=kept") {
		t.Errorf("the relay gets %v", got)
	}
	for _, v := range got {
		if strings.HasPrefix(v, "CANAL_OUTBOX_") {
			t.Errorf("%s would override the configuration", v)
		}
	}
}
