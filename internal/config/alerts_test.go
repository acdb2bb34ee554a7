package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestAlertsAreChecked(t *testing.T) {
	for section, want := range map[string]string{
		`{webhook: "hooks.example/x"}`:                              "alerts.webhook = \"******\"",
		`{webhook: "ftp://hooks.example/T0KEN"}`:                    "alerts.webhook = \"ftp://hooks.example/******\"",
		`{webhook: "https://"}`:                                     "alerts.webhook",
		`{webhook: "https://h.example:port/T0KEN"}`:                 "alerts.webhook = \"******\"",
		`{secret: 0123456789abcdef}`:                                "alerts.secret = \"******\"",
		`{webhook: "https://h.example/", secret: short}`:            "shorter than 16",
		`{pending_over: 100000}`:                                    "alerts.pending_over",
		`{pending_over: -1}`:                                        "alerts.pending_over",
		`{oldest_over: 5s}`:                                         "alerts.oldest_over",
		`{oldest_over: -5m}`:                                        "alerts.oldest_over",
		`{digest: "08:00"}`:                                         "alerts.digest",
		`{webhook: "https://h.example/", digest: "8:00"}`:           "is not a time of day",
		`{webhook: "https://h.example/", digest: "24:00"}`:          "is not a time of day",
		`{webhook: "https://h.example/", digest: "at eight"}`:       "is not a time of day",
		`{webhook: "https://h.example/", secret_file: /nowhere/at}`: "alerts.secret_file",
	} {
		got := faults(t, minimal+"\nalerts: "+section+"\n")
		if len(got) != 1 || !strings.Contains(got[0].String(), want) || strings.Contains(got[0].String(), "T0KEN") {
			t.Errorf("%s: %v", section, got)
		}
	}
	parse(t, minimal+"\nalerts: {webhook: \"http://127.0.0.1:8080/hook\", secret: 0123456789abcdef, digest: \"23:59\"}\n")
}

// The address of a webhook is often a credential: only the host is shown. The printed configuration can be read again.
func TestTheWebhookIsNotShown(t *testing.T) {
	for webhook, want := range map[string]string{
		"https://hooks.example/services/T0KEN": "https://hooks.example/******",
		"https://hooks.example?key=T0KEN":      "https://hooks.example/******",
		"https://T0KEN@hooks.example":          "https://hooks.example/******",
		"https://hooks.example:8443/":          "https://hooks.example:8443/",
	} {
		cfg := parse(t, minimal+"\nalerts: {webhook: \""+webhook+"\", secret: canary-T0KEN-canary}\n")
		if cfg.Alerts.Webhook.Reveal() != webhook {
			t.Errorf("it is %q", cfg.Alerts.Webhook.Reveal())
		}
		printed, err := cfg.Print()
		if err != nil || !strings.Contains(string(printed), want) {
			t.Errorf("%v: %s is not in %s", err, want, printed)
		}
		for _, shown := range []string{string(printed), fmt.Sprintf("%v %+v %#v %s %q", *cfg, cfg.Alerts, cfg.Alerts, cfg.Alerts.Webhook, cfg.Alerts.Webhook)} {
			if strings.Contains(shown, "T0KEN") {
				t.Errorf("shown in %s", shown)
			}
		}
		if again := parse(t, string(printed)); again.Alerts.Webhook.String() != want {
			t.Errorf("read back as %s", again.Alerts.Webhook)
		}
	}
}
