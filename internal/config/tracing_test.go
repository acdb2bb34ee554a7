package config

import (
	"strings"
	"testing"
)

// The endpoint is a web address, and credentials in it are not shown.
func TestTracingIsChecked(t *testing.T) {
	for _, wrong := range []string{"collector:4318", "grpc://collector:4317", "http://"} {
		got := faults(t, minimal+"\ntracing: {endpoint: \""+wrong+"\"}\n")
		if len(got) != 1 || !strings.Contains(got[0].String(), "tracing.endpoint") {
			t.Errorf("%s: %v", wrong, got)
		}
	}
	cfg := parse(t, minimal+"\ntracing: {endpoint: \"https://collector/token-4711\"}\n")
	printed, err := cfg.Print()
	if err != nil || strings.Contains(string(printed), "4711") || cfg.Tracing.Endpoint.Reveal() != "https://collector/token-4711" {
		t.Errorf("%v\n%s", err, printed)
	}
}
