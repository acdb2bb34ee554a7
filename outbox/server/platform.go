package server

import (
	"fmt"
	"slices"
	"strings"
)

// Platform is what a server runs on, as far as its variables show it. Its text is the name for people.
type Platform string

const (
	Plain     Platform = "" // a server of one's own, or one that no mark shows
	RDS       Platform = "Amazon RDS"
	Aurora    Platform = "Amazon Aurora"
	AliyunRDS Platform = "Alibaba Cloud RDS"
	PolarDB   Platform = "Alibaba Cloud PolarDB"
	CloudSQL  Platform = "Google Cloud SQL"
	Azure     Platform = "Azure Database for MySQL"
	TencentDB Platform = "TencentDB"
	TiDB      Platform = "TiDB"
	OceanBase Platform = "OceanBase"
)

// mark shows a platform by a variable: by its value, or, with text "", by being there.
type mark struct {
	platform       Platform
	variable, text string // text is in lower case, and a part of the value
}

// marks are asked in this order: an Aurora server has the marks of RDS too, a PolarDB of 2020 may have those of Aliyun RDS.
// docs/managed-servers.md has the source of each.
var marks = []mark{
	{TiDB, "version", "-tidb-"},
	{TiDB, "version_comment", "tidb server"},
	{OceanBase, "version", "oceanbase"},
	{OceanBase, "version_comment", "oceanbase"},
	{Aurora, "aurora_version", ""},
	{RDS, "basedir", "/rdsdbbin/"},
	{RDS, "version_comment", "aws.amazon.com/rds"},
	{PolarDB, "polardb_version", ""},
	{AliyunRDS, "rds_release_date", ""},
	{CloudSQL, "version", "-google"},
	{Azure, "version", "-azure"},
	{TencentDB, "version", "-txsql"},
}

// markNames are the variables of marks, and the one that shows a reader of Aurora.
func markNames() []string {
	names := []string{"innodb_read_only"}
	for _, m := range marks {
		names = append(names, m.variable)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// platform is the first platform whose mark the variables have.
func (v variables) platform() Platform {
	for _, m := range marks {
		if value, there := v[m.variable]; there && strings.Contains(strings.ToLower(value), m.text) {
			return m.platform
		}
	}
	return Plain
}

// reader reports whether the server is an instance of Aurora that reads the cluster's storage: it writes nothing, no binlog either,
// and its read_only may be off.
func (v variables) reader() bool { return v.platform() == Aurora && v.on("innodb_read_only") }

// on is the platform for the line about the version; "" on a plain server.
func (i Info) on() string {
	if i.Platform == Plain {
		return ""
	}
	return ", on " + string(i.Platform)
}

// readOnly reports whether the server accepts no writes.
func (v variables) readOnly() bool {
	return v.on("read_only") || v.on("super_read_only") || v.reader()
}

// NoBinlogError says that a server is of a kind that has no binlog of MySQL's form, and can be no source.
type NoBinlogError struct {
	Platform Platform
	Version  string // as the server prints it
}

// Error implements error.
func (e *NoBinlogError) Error() string {
	return fmt.Sprintf("the server is %s (%s), which has no MySQL binlog: canal-outbox cannot follow its tables", e.Platform, e.Version)
}

// Cure says what to do.
func (e *NoBinlogError) Cure() string { return e.Platform.Cure(LogBin) }
