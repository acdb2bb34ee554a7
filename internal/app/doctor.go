package app

import (
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// doctorPatience bounds each conversation of the check: a host that swallows packets must not hold it up.
const doctorPatience = 15 * time.Second

// Doctor checks everything that can be wrong before the first message and returns all of it at once. It changes nothing.
func Doctor(ctx context.Context, cfg *config.Config) []server.Finding {
	d := &doctor{cfg: cfg, largest: map[string]int64{}}
	d.state(ctx)
	d.source(ctx)
	d.broker(ctx)
	return d.findings
}

// doctor collects findings; what one step learns the next ones use.
type doctor struct {
	cfg      *config.Config
	findings []server.Finding

	running    bool // a daemon has the state directory
	recorded   server.ID
	checkpoint outbox.Position

	topics  []string         // that recent rows name
	largest map[string]int64 // the largest body of the recent rows of each topic, in bytes
}

func (d *doctor) add(severity server.Severity, subject, fix, what string, args ...any) {
	d.findings = append(d.findings, server.Finding{Severity: severity, Subject: subject, What: fmt.Sprintf(what, args...), Fix: fix})
}

// source checks the server and the tables in it.
func (d *doctor) source(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	settings, err := serverConfig(d.cfg.Source)
	if err != nil {
		d.add(server.Fault, "source.tls", "correct the files of source.tls", "%v", err)
		return
	}
	db, err := server.Open(settings, nil, server.Session{MaxConns: 1})
	if err != nil {
		d.add(server.Fault, "source", "", "%v", err)
		return
	}
	defer func() {
		if err := db.Close(); err != nil {
			d.add(server.Warning, "source", "", "the connection did not close: %v", err)
		}
	}()
	info, err := server.Inspect(ctx, db)
	if err != nil {
		d.add(server.Fault, "source", connectFix(err, d.cfg.Source), "%v", err)
		return
	}
	d.encryption(ctx, db)
	if end, err := info.End(ctx, db); err == nil { // without the grant for it, the finding about grants says so
		d.identity(info, end)
	}
	d.serverID(ctx, db, info)
	d.clock(ctx, db)
	d.tables(ctx, settings, db)
}

// connectFix says what helps against a connection that did not come about.
func connectFix(err error, s config.Source) string {
	if server.Classify(err) == server.Service {
		return fmt.Sprintf("check source.user and its password; the account must be allowed to come from this host:\n"+
			"CREATE USER '%s'@'%%' IDENTIFIED BY '...'", s.User)
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	if errors.As(err, &authority) || errors.As(err, &name) {
		return "set source.tls.ca to the authority that signed the server's certificate, and source.address to a name that stands in it"
	}
	return "check source.address, that the server runs and that no firewall is between"
}

// tables looks at the log's settings, the grants and every mapped table, as a start does.
func (d *doctor) tables(ctx context.Context, settings server.Config, db *sql.DB) {
	tables, findings, err := inspectSource(ctx, d.cfg, settings)
	d.findings = append(d.findings, findings...)
	if err != nil {
		d.add(server.Fault, "tables", "", "%v", err)
		return
	}
	for _, t := range tables {
		d.table(ctx, db, t)
	}
}

// recentRows is how many of the newest rows are looked at for topics and sizes.
const recentRows = 1000

// table asks how the sweep would look for rows, and looks at the newest ones.
func (d *doctor) table(ctx context.Context, db *sql.DB, t *table.Table) {
	if plan, err := t.ExplainSweep(ctx, db); err != nil {
		d.add(server.Warning, t.Name(), "", "how the sweep looks for rows could not be asked: %v", err)
	} else {
		d.findings = append(d.findings, plan)
	}
	name := quoteName(t)
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT topic, MAX(LENGTH(body)) FROM "+
		"(SELECT `%s` AS topic, `%s` AS body FROM %s ORDER BY `%s` DESC LIMIT %d) AS recent GROUP BY topic",
		t.ColumnName(table.Topic), t.ColumnName(table.Body), name, t.ColumnName(table.ID), recentRows))
	if err != nil {
		d.add(server.Fault, t.Name(), "", "its newest rows cannot be read: %v", err)
		return
	}
	if err := errors.Join(d.readRecent(rows), rows.Close()); err != nil {
		d.add(server.Fault, t.Name(), "", "its newest rows cannot be read: %v", err)
	}
}

func (d *doctor) readRecent(rows *sql.Rows) error {
	for rows.Next() {
		var topic sql.NullString
		var size sql.NullInt64
		if err := rows.Scan(&topic, &size); err != nil {
			return err
		}
		if _, seen := d.largest[topic.String]; !seen && topic.String != "" {
			d.topics = append(d.topics, topic.String)
		}
		d.largest[topic.String] = max(d.largest[topic.String], size.Int64)
	}
	return rows.Err()
}

// quoteName is schema.table as an identifier.
func quoteName(t *table.Table) string {
	return "`" + t.Schema() + "`.`" + t.Name()[len(t.Schema())+1:] + "`"
}
