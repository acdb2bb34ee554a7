package server

import (
	"fmt"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Subjects of cures: variables of the server by their names, and other things that only an operator of the server can change.
const (
	LogBin            = "log_bin"
	BinlogFormat      = "binlog_format"
	RowMetadata       = "binlog_row_metadata"
	RowImage          = "binlog_row_image"
	GTIDMode          = "gtid_mode"
	SyncBinlog        = "sync_binlog"
	LogSlaveUpdates   = "log_slave_updates"   // of a replica
	LogReplicaUpdates = "log_replica_updates" // of a server that may become one
	MaxPacket         = "max_allowed_packet"
	ExpireLogs        = "binlog_expire_logs_seconds" // a retention above the shortest that is useful
	KeepLogs          = "keep logs"                  // a retention above the longest stop
	LogFilter         = "log filter"                 // binlog_do_db and binlog_ignore_db
	Primary           = "primary"                    // another address, where the server accepts no writes
	Encryption        = "encryption"
)

// way is how a service lets its customers change a variable. SET GLOBAL needs a right that no service grants.
type way struct {
	set    string            // takes the name and the value
	others map[string]string // cures by subject that are no value of a variable, or where the variable is not offered
}

// values are what the relay wants.
var values = map[string]string{
	BinlogFormat: "ROW", RowMetadata: "FULL", RowImage: "FULL", GTIDMode: "ON", SyncBinlog: "1", LogSlaveUpdates: "ON", LogReplicaUpdates: "ON",
	MaxPacket: "1073741824", ExpireLogs: "259200", KeepLogs: "604800",
}

// variable is the name of the variable of a subject.
func variable(subject string) string {
	if subject == KeepLogs {
		return ExpireLogs
	}
	return subject
}

// plain are the cures of a server whose operator has its configuration file and every right.
var plain = map[string]string{
	LogBin:            "set log_bin in the server's configuration and restart it",
	BinlogFormat:      "SET GLOBAL binlog_format = 'ROW' (applications must connect again), and set it in the server's configuration file",
	RowMetadata:       "SET GLOBAL binlog_row_metadata = 'FULL' (MySQL 8.0.1, MariaDB 10.5 and later), and set it in the server's configuration file",
	RowImage:          "SET GLOBAL binlog_row_image = 'FULL' (applications must connect again), and set it in the server's configuration file",
	GTIDMode:          "turn gtid_mode ON (MySQL manual, Changing GTID Mode Online)",
	SyncBinlog:        "SET GLOBAL sync_binlog = 1, and set it in the server's configuration file",
	LogSlaveUpdates:   "set log_slave_updates in the server's configuration and restart it, or point source.address at the primary",
	LogReplicaUpdates: "set log_replica_updates in the server's configuration and restart it",
	MaxPacket:         "SET GLOBAL max_allowed_packet = 1073741824",
	ExpireLogs:        "SET GLOBAL binlog_expire_logs_seconds = 259200, and set it in the server's configuration file",
	KeepLogs:          "SET GLOBAL binlog_expire_logs_seconds = 604800, and set it in the server's configuration file",
	LogFilter:         "remove the option from the server's configuration and restart it",
	Primary:           "point source.address at the primary, or end the maintenance",
	Encryption:        "give the server a certificate and set source.tls.mode to verify-identity",
}

// service are the cures of every service without one of its own.
var service = map[string]string{
	LogBin:     "ask the support of the service: its binlog is on by default, and its customers have no switch for it",
	LogFilter:  "ask the support of the service: its customers cannot change the option",
	Primary:    "point source.address at the primary instance",
	Encryption: "turn on SSL for the instance in the console, and set source.tls.mode to verify-identity with the CA file of the service in source.tls.ca",
}

// gtidSteps is why the services that let gtid_mode be changed do it by steps.
const gtidSteps = "%s, with enforce_gtid_consistency ON first and one step after the other: OFF_PERMISSIVE, ON_PERMISSIVE, ON"

// ways are the services. docs/managed-servers.md names the source of each statement.
var ways = map[Platform]way{
	RDS: {
		set: "set %s = %s in the DB parameter group of the instance (not a default group, which cannot be changed), and reboot when the console shows pending-reboot",
		others: map[string]string{
			LogBin:     "set the backup retention period of the instance to a day or more: RDS writes a binlog while automated backups are on",
			GTIDMode:   fmt.Sprintf(gtidSteps, "set gtid_mode in the DB parameter group of the instance, and reboot"),
			ExpireLogs: "CALL mysql.rds_set_configuration('binlog retention hours', 72)",
			KeepLogs:   "CALL mysql.rds_set_configuration('binlog retention hours', 168)",
			Encryption: "set source.tls.mode to verify-identity, and source.tls.ca to the certificate bundle of RDS (global-bundle.pem)",
		},
	},
	Aurora: {
		set: "set %s = %s in the DB cluster parameter group, and reboot the writer",
		others: map[string]string{
			LogBin:     "set binlog_format = ROW in the DB cluster parameter group, and reboot the writer: Aurora writes no binlog while binlog_format is OFF",
			GTIDMode:   fmt.Sprintf(gtidSteps, "set gtid_mode in the DB cluster parameter group, and reboot the writer"),
			ExpireLogs: "CALL mysql.rds_set_configuration('binlog retention hours', 72)",
			KeepLogs:   "CALL mysql.rds_set_configuration('binlog retention hours', 168)",
			Primary:    "set source.address to the cluster endpoint, which names the writer; only the writer has a binlog",
			Encryption: "set source.tls.mode to verify-identity, and source.tls.ca to the certificate bundle of RDS (global-bundle.pem)",
		},
	},
	AliyunRDS: {
		set: "set %s = %s on the parameter page of the instance in the console",
		others: map[string]string{
			ExpireLogs: "set the retention of local binlogs to 72 hours or more in the console (backup settings, local logs)",
			KeepLogs:   "set the retention of local binlogs to 168 hours in the console (backup settings, local logs)",
		},
	},
	PolarDB: {
		set: "set %s = %s (its name there may begin with loose_) on the parameter page of the cluster in the console",
		others: map[string]string{
			LogBin:  "set loose_polar_log_bin = ON (5.6: ON_WITH_GTID) on the parameter page of the cluster in the console: PolarDB writes no binlog by default. The cluster restarts",
			Primary: "set source.address to the primary endpoint of the cluster",
		},
	},
	CloudSQL: {
		set: "gcloud sql instances patch INSTANCE --database-flags=%s=%s (name every flag that is set: the command replaces all; the instance may restart)",
		others: map[string]string{
			LogBin:     "gcloud sql instances patch INSTANCE --enable-bin-log (point-in-time recovery; it needs automated backups)",
			Encryption: "set source.tls.ca to the server CA of the instance, and source.tls.mode to verify-ca (its certificate names no host unless the instance uses a shared CA: verify-identity then)",
		},
	},
	Azure: {
		set: "az mysql flexible-server parameter set --resource-group GROUP --server-name SERVER --name %s --value %s (or the server parameters in the portal)",
		others: map[string]string{
			RowMetadata: "nothing to do: Azure does not let it be changed. Tables with a status work without it",
			Encryption:  "set source.tls.mode to verify-identity; source.tls.ca is a file with the root CAs that Microsoft names",
		},
	},
	TencentDB: {
		set: "set %s = %s on the parameter page of the instance in the console",
		others: map[string]string{
			ExpireLogs: "set the retention of local binlogs to 72 hours or more in the console",
			KeepLogs:   "set the retention of local binlogs to 168 hours in the console",
		},
	},
	TiDB:      {others: map[string]string{LogBin: "keep the outbox table on MySQL or MariaDB, or publish TiDB's changes with TiCDC"}},
	OceanBase: {others: map[string]string{LogBin: "turn on the OceanBase Binlog Service of the tenant, or keep the outbox table on MySQL or MariaDB"}},
}

// Cure returns how the operator of a server on this platform changes a subject, one of the constants above. A platform without an
// answer of its own has that of a plain server.
func (p Platform) Cure(subject string) string {
	w := ways[p]
	if text, own := w.others[subject]; own {
		return text
	}
	if value, has := values[subject]; has && w.set != "" {
		return fmt.Sprintf(w.set, variable(subject), value)
	}
	if text, has := service[subject]; has && w.set != "" {
		return text
	}
	return plain[subject]
}

// Cure is Platform.Cure for this version of the server.
func (i Info) Cure(subject string) string {
	if subject == RowMetadata && i.RowMetadata == "" {
		return "upgrade to MySQL 8.0 or MariaDB 10.5: this version has no binlog_row_metadata"
	}
	return strings.NewReplacer(
		LogReplicaUpdates, i.named(LogReplicaUpdates, 8, 0, 26, LogSlaveUpdates),
		ExpireLogs+" = 259200", i.named(ExpireLogs+" = 259200", 8, 0, 1, "expire_logs_days = 3"),
		ExpireLogs+" = 604800", i.named(ExpireLogs+" = 604800", 8, 0, 1, "expire_logs_days = 7"),
	).Replace(i.Platform.Cure(subject))
}

// named chooses the name that MySQL has since a release, or the older one. MariaDB knows both.
func (i Info) named(name string, major, minor, patch int, older string) string {
	if i.Flavor == outbox.MySQL && !i.AtLeast(major, minor, patch) {
		return older
	}
	return name
}

// grantors are the accounts that can grant what the relay needs, where there is no SUPER.
var grantors = map[Platform]string{
	RDS:       "the master user can grant it (with MySQL 8.0.36 and later by its role rds_superuser_role)",
	Aurora:    "the master user can grant it (from version 3 by its role rds_superuser_role)",
	AliyunRDS: "a privileged account of the console can grant it",
	PolarDB:   "a privileged account of the console can grant it",
	CloudSQL:  "root, or another user with cloudsqlsuperuser, can grant it",
	Azure:     "the server admin can grant it",
	TencentDB: "root, or the account page of the console, can grant it",
}

// grantor is what a message about a missing right says in addition; "" on a plain server.
func (p Platform) grantor() string {
	if text := grantors[p]; text != "" {
		return ": " + text
	}
	return ""
}

// sessionRight is the cure where the account may not narrow its own updates in the binlog; grant is the statement for a plain server.
func (i Info) sessionRight(grant string) string {
	switch {
	case i.Platform == Plain:
		return grant
	case i.Flavor == outbox.MySQL && (i.Platform == RDS || i.Platform == Aurora): // rds_superuser_role lacks it
		return "nothing to do: " + string(i.Platform) + " gives this right to no account"
	}
	return grant + " (if the service lets an account grant it)"
}
