package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A table's own ages replace the common ones, each one that is left out is 0, and `{}` keeps every row.
func TestRetentionOfATable(t *testing.T) {
	const three = `
source: {address: "127.0.0.1", user: u}
tables:
  - {name: shop.a, preset: outbox}
  - {name: shop.b, preset: outbox, retention: {sent: 24h, failed: 48h}}
  - {name: shop.c, preset: outbox, retention: {}}
sink: {stdout: {}}
checkpoint: {dir: /tmp/x}
retention: {archive: 720h, window: "02:00-05:00"}
`
	cfg := parse(t, three)
	printed, err := cfg.Print()
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []*Config{cfg, parse(t, string(printed))} {
		for i, want := range []Retention{
			{Archive: 720 * time.Hour}, {Sent: 24 * time.Hour, Failed: 48 * time.Hour}, {},
		} {
			want.Window = "02:00-05:00"
			if got := cfg.RetentionOf(&cfg.Tables[i]); got != want {
				t.Errorf("%s: %+v, want %+v", cfg.Tables[i].Name, got, want)
			}
		}
	}
	if got := cfg.RetentionOf(&cfg.Tables[1]); !slices.Equal(got.Suffixes(), []string{"_failed"}) {
		t.Errorf("rows of shop.b move to %v", got.Suffixes())
	}
}

// Invalid values are refused with their place.
func TestRetentionFaults(t *testing.T) {
	text := func(own, all string) string {
		return strings.NewReplacer("PRESET", "t_local_message", "MORE", own).Replace(consumers) + all
	}
	for _, c := range []struct{ own, all, want string }{
		{"retention: {sent: 1s}", "", "tables[0].retention.sent"},
		{"retention: {failed: -1h}", "", "tables[0].retention.failed"},
		{"retention: {sent: 1h, archive: 2h}", "", "set together with tables[0].retention.sent"},
		{"retention: {window: 02:00-05:00}", "", "tables[0].retention.window"},
		{"retention: {}", "retention: {window: 02:00-05:00}", "retention.window"},
		{"retention: {}", "retention: {sent: 1h, archive: 2h}", "set together with retention.sent"},
		{"retention: {failed: 12h}, retry: {failed_every: 12h}", "", "before they are tried again"},
		{"retention: {failed: 12h}", "retry: {failed_every: 12h}", "retry.failed_every"},
		{"redeliver: {after: 10m}, codes: {consumed: 4}, retention: {sent: 10m}", "", "no row would go out again"},
		{"retention: {sent: 1h}", "retention: {max_replica_lag: 10s}", "no replica is named"},
		{"retention: {sent: 1h}", "retention: {max_replica_lag: 1ms}\nfallback: {read_from: \"127.0.0.1:3307\"}", "retention.max_replica_lag"},
	} {
		if got := faults(t, text(c.own, c.all)); len(got) != 1 || !strings.Contains(got[0].String(), c.want) {
			t.Errorf("%s %s: %v", c.own, c.all, got)
		}
	}
	parse(t, text("retention: {failed: 12h}, retry: {failed_every: 1h}", "retry: {failed_every: 12h}"))
	parse(t, text("retention: {}, redeliver: {after: 48h}, codes: {consumed: 4}", "retention: {sent: 24h}"))
	parse(t, text("retention: {sent: 1h}", "retention: {max_replica_lag: 10s}\nfallback: {read_from: \"127.0.0.1:3307\"}"))
}
