package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// about returns the severity of the finding about a setting; "" when there is none.
func about(findings []Finding, setting string) Severity {
	for _, f := range findings {
		if f.Subject == "server."+setting {
			return f.Severity
		}
	}
	return ""
}

func TestCheckOfSettings(t *testing.T) {
	good := Info{
		ID: ID{Flavor: outbox.MySQL, UUID: u1}, Version: "9.7.4", GTID: true, LogBin: true, BinlogFormat: "ROW", RowMetadata: "FULL",
		LogReplicas: true, SyncBinlog: true, LogRetention: 30 * 24 * time.Hour, SessionImage: "MINIMAL",
	}
	for _, f := range good.check("relay@%") {
		if f.Severity != OK {
			t.Errorf("a good server: %+v", f)
		}
	}
	for setting, c := range map[string]struct {
		spoil func(*Info)
		want  Severity
	}{
		"log_bin":                    {func(i *Info) { i.LogBin = false }, Fault},
		"read_only":                  {func(i *Info) { i.ReadOnly = true }, Fault},
		"binlog_format":              {func(i *Info) { i.BinlogFormat = "STATEMENT" }, Fault},
		"binlog_row_metadata":        {func(i *Info) { i.RowMetadata = "" }, Warning},
		"gtid_mode":                  {func(i *Info) { i.GTID = false }, Warning},
		"sync_binlog":                {func(i *Info) { i.SyncBinlog = false }, Warning},
		"log_replica_updates":        {func(i *Info) { i.LogReplicas = false }, Warning},
		"log_slave_updates":          {func(i *Info) { i.Flavor, i.Replica, i.LogReplicas = outbox.MariaDB, true, false }, Fault}, // A57
		"binlog_expire_logs_seconds": {func(i *Info) { i.LogRetention = time.Hour }, Warning},                                     // A58
		"binlog_row_image":           {func(i *Info) { i.SessionImage = "FULL" }, Warning},                                        // D05
		"skip_locked":                {func(i *Info) { i.Version = "5.7.22-log" }, Warning},
	} {
		info := good
		c.spoil(&info)
		findings := info.check("relay@%")
		if got := about(findings, setting); got != c.want {
			t.Errorf("%s: %q, want %q", setting, got, c.want)
		}
		for _, f := range findings {
			if f.Severity != OK && (f.What == "" || f.Fix == "") {
				t.Errorf("%+v says not what to do", f)
			}
		}
	}
}

// A30: filters of the binlog are found where the server shows them.
func TestA30_CheckFindsFilters(t *testing.T) {
	for _, flavor := range testkit.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			ctx := context.Background()
			args := []string{"--binlog-do-db=shop", "--binlog-row-metadata=MINIMAL", "--binlog-expire-logs-seconds=3600"}
			old := testkit.SharedDatabase(t, flavor).Before(8, 0)
			if old {
				args = args[:1] // it has no metadata, and keeps its logs for days
			}
			d := testkit.NewDatabase(t, testkit.DatabaseOptions{Flavor: flavor, Args: args})
			db := open(t, root(d), nil, Session{Writes: true})
			info, err := Inspect(ctx, db)
			testkit.Must(t, err)
			findings, err := info.Check(ctx, db)
			testkit.Must(t, err)
			for setting, want := range map[string]Severity{
				"binlog_do_db": Warning, "binlog_row_metadata": Warning, "binlog_expire_logs_seconds": Warning, "sync_binlog": Warning,
				"version": OK, "gtid_mode": "", "read_only": "", "binlog_row_image": "",
			} {
				if got := about(findings, setting); got != want && !(old && setting == "binlog_expire_logs_seconds") {
					t.Errorf("%s: %q, want %q", setting, got, want)
				}
			}
			for _, f := range findings {
				if f.Subject == "server.binlog_do_db" && !strings.Contains(f.What, "shop") {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}
