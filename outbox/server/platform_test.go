package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestPlatformFromVariables(t *testing.T) {
	for _, c := range []struct {
		vars   variables
		want   Platform
		reader bool
	}{
		{variables{"version": "8.0.41", "version_comment": "Source distribution", "basedir": "/rdsdbbin/mysql-8.0.41.R2/"}, RDS, false},
		{variables{"version": "10.11.7-MariaDB-log", "version_comment": "managed by https://aws.amazon.com/rds/"}, RDS, false},
		{variables{"version": "8.0.39", "basedir": "/rdsdbbin/oscar-8.0.39/", "aurora_version": "3.08.2", "innodb_read_only": "OFF"}, Aurora, false},
		{variables{"version": "8.0.39", "basedir": "/rdsdbbin/oscar-8.0.39/", "aurora_version": "3.08.2", "innodb_read_only": "ON"}, Aurora, true},
		{variables{"version": "8.0.36", "rds_release_date": "20251031"}, AliyunRDS, false},
		{variables{"version": "8.0.13", "polardb_version": "8.0.1.1.42", "rds_release_date": "20240101"}, PolarDB, false},
		{variables{"version": "8.0.31-google", "version_comment": "(Google)"}, CloudSQL, false},
		{variables{"version": "8.0.37-azure", "version_comment": "Source distribution"}, Azure, false},
		{variables{"version": "5.7.18-txsql-log", "version_comment": "20210630"}, TencentDB, false},
		{variables{"version": "8.0.11-TiDB-v7.5.1"}, TiDB, false},
		{variables{"version": "5.7.25-OceanBase_CE-v4.4.2.1"}, OceanBase, false},
		{variables{"version": "5.7.25", "version_comment": "OceanBase 3.1.3 (r2022)"}, OceanBase, false},
		{variables{"version": "8.0.31", "version_comment": "MySQL Community Server - GPL", "basedir": "/usr/", "innodb_read_only": "ON"}, Plain, false},
		{variables{"version": "11.8.3-MariaDB-0+deb13u1 from Debian", "version_comment": "-- Please help get to 10k stars"}, Plain, false},
		{variables{}, Plain, false},
	} {
		if got := c.vars.platform(); got != c.want || c.vars.reader() != c.reader {
			t.Errorf("%v: %q, reader %v; want %q, %v", c.vars, got, c.vars.reader(), c.want, c.reader)
		}
	}
}

// Each platform has a cure for each subject; a service's cure is no SET GLOBAL, which it refuses, and no configuration file, which
// its customers do not have.
func TestCuresAreOnesThatThePlatformAllows(t *testing.T) {
	platforms := []Platform{Plain, RDS, Aurora, AliyunRDS, PolarDB, CloudSQL, Azure, TencentDB}
	subjects := []string{
		LogBin, BinlogFormat, RowMetadata, RowImage, GTIDMode, SyncBinlog, LogSlaveUpdates, LogReplicaUpdates, MaxPacket, ExpireLogs, KeepLogs,
		LogFilter, Primary, Encryption,
	}
	for _, p := range platforms {
		for _, subject := range subjects {
			text := p.Cure(subject)
			if text == "" || strings.Contains(text, "%!") {
				t.Errorf("%q, %s: %q", p, subject, text)
			}
			if unknown := Platform("Some Cloud").Cure(subject); p == Plain && unknown != text {
				t.Errorf("an unknown platform, %s: %q, a plain server %q", subject, unknown, text)
			}
			if p != Plain && (strings.Contains(text, "SET GLOBAL") || strings.Contains(text, "configuration file") || strings.Contains(text, "server's configuration")) {
				t.Errorf("%q, %s: %q", p, subject, text)
			}
		}
	}
	if got, want := Plain.Cure(BinlogFormat), "SET GLOBAL binlog_format = 'ROW' (applications must connect again), and set it in the server's configuration file"; got != want {
		t.Errorf("%q", got)
	}
	if got := RDS.Cure(KeepLogs); got != "CALL mysql.rds_set_configuration('binlog retention hours', 168)" {
		t.Errorf("%q", got)
	}
	if got := PolarDB.Cure(KeepLogs); !strings.Contains(got, "binlog_expire_logs_seconds = 604800") {
		t.Errorf("%q", got)
	}
}

// The findings of a start, and of the looks of a running reader, have the cure of the platform.
func TestSettingsOfAManagedServer(t *testing.T) {
	i := Info{Platform: RDS, LogBin: true, BinlogFormat: "MIXED", SyncBinlog: true, LogReplicas: true, GTID: true, Purge: Unset}
	want := map[string]string{
		"server.binlog_format":          "DB parameter group",
		"server.binlog_row_metadata":    "upgrade to MySQL 8.0",
		"server.binlog retention hours": "CALL mysql.rds_set_configuration('binlog retention hours', 72)",
	}
	for _, f := range i.settings() {
		if !strings.Contains(f.Fix, want[f.Subject]) || f.Severity == OK != (f.Subject == "server.version") {
			t.Errorf("%+v", f)
		}
		delete(want, f.Subject)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	i = Info{Platform: Aurora, Reader: true, LogBin: true}
	if all := i.check("relay@%"); len(all) != 2 || all[1].Severity != Fault || !strings.Contains(all[1].Fix, "cluster endpoint") {
		t.Errorf("a reader: %+v", all)
	}
}

func TestServersWithoutABinlogAreRefused(t *testing.T) {
	for _, vars := range []variables{
		{"version": "8.0.11-TiDB-v7.5.1", "server_id": "0"},
		{"version": "8.0.11-TiDB-v7.5.1", "server_id": "1", "server_uuid": u1},
		{"version": "5.7.25-OceanBase_CE-v4.4.2.1", "server_id": "1"},
	} {
		_, err := vars.id()
		var none *NoBinlogError
		if !errors.As(err, &none) || !strings.Contains(err.Error(), "no MySQL binlog") || none.Cure() == "" || Classify(fmt.Errorf("inspect: %w", err)) != Service {
			t.Errorf("%v: %v", vars, err)
		}
	}
}

// The procedure of RDS is called as a customer's account calls it, through a real server: its answer has a result set more than a SELECT,
// and the connection must be usable after it.
func TestRetentionOfRDSIsAsked(t *testing.T) {
	onBoth(t, func(t *testing.T, d *testkit.Database) {
		testkit.Exec(t, d.Root(), `CREATE PROCEDURE mysql.rds_show_configuration() BEGIN
			SELECT 'binlog retention hours' AS name, 36 AS value, 'hours before a binlog is removed' AS description
			UNION SELECT 'source delay', 0, 'seconds'; END`)
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP PROCEDURE mysql.rds_show_configuration") })
		testkit.Must(t, d.CreateUser(t.Context(), "managed", "secret"))
		t.Cleanup(func() { testkit.Exec(t, d.Root(), "DROP USER 'managed'@'%'") })
		ask := func() Info {
			db := open(t, Config{Address: d.Addr(), User: "managed", Password: setting.NewSecret("secret")}, nil, Session{MaxConns: 1})
			conn, err := db.Conn(t.Context())
			testkit.Must(t, err)
			defer conn.Close()
			i := Info{Platform: RDS, LogRetention: 30 * 24 * time.Hour}
			testkit.Must(t, i.askPurge(t.Context(), conn))
			var one int
			testkit.Must(t, conn.QueryRowContext(t.Context(), "SELECT 1").Scan(&one))
			return i
		}
		if i := ask(); i.Purge != Unknown || i.LogRetention != 0 {
			t.Errorf("without the right: %d, %v", i.Purge, i.LogRetention)
		}
		testkit.Exec(t, d.Root(), "GRANT "+RetentionRight+" TO 'managed'@'%'")
		if i := ask(); i.Purge != ByRetention || i.LogRetention != 36*time.Hour {
			t.Errorf("36 hours: %d, %v", i.Purge, i.LogRetention)
		}
		testkit.Exec(t, d.Root(), "DROP PROCEDURE mysql.rds_show_configuration")
		testkit.Exec(t, d.Root(), `CREATE PROCEDURE mysql.rds_show_configuration() SELECT 'binlog retention hours' AS name, NULL AS value, '' AS description`)
		testkit.Exec(t, d.Root(), "GRANT "+RetentionRight+" TO 'managed'@'%'")
		if i := ask(); i.Purge != Unset || i.LogRetention != 0 {
			t.Errorf("not set: %d, %v", i.Purge, i.LogRetention)
		}
	})
}

func TestRetentionOfAService(t *testing.T) {
	for _, c := range []struct {
		info     Info
		severity Severity
		words    string
	}{
		{Info{LogRetention: time.Hour}, Warning, "kept for 1h0m0s"},
		{Info{LogRetention: 48 * time.Hour}, "", ""},
		{Info{}, "", ""}, // kept until it is purged by hand
		{Info{Platform: RDS, Purge: Unset}, Warning, "is not set"},
		{Info{Platform: RDS, Purge: Unknown}, NotChecked, "EXECUTE ON PROCEDURE"},
		{Info{Platform: Aurora, LogRetention: 12 * time.Hour}, Warning, "kept for 12h"},
		{Info{Platform: Azure, Purge: Unset}, Warning, "is not set"},
	} {
		f, found := c.info.retention()
		if found != (c.severity != "") || f.Severity != c.severity || !strings.Contains(f.What, c.words) {
			t.Errorf("%+v: %+v", c.info, f)
		}
	}
	i := Info{Platform: Azure}
	if testkit.Must(t, i.askPurge(t.Context(), nil)); i.Purge != Unset {
		t.Error("Azure removes binlogs at once with binlog_expire_logs_seconds = 0")
	}
}
