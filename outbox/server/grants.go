package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// Probe is a statement that shows, without doing anything, whether the account has privileges on an object.
type Probe struct {
	Privileges string // as in GRANT
	On         string // as in GRANT, quoted
	Statement  string
	Args       []any
}

// Grants checks the privileges of the pool's account: those of the reader, and what the probes show. Each missing one is
// a fault whose Fix is the GRANT. Trying is better than reading SHOW GRANTS, which hides what comes through roles and
// patterns. It needs the session's server to be the one that will be used.
func (i Info) Grants(ctx context.Context, db *sql.DB, probes []Probe) ([]Finding, error) {
	needs := i.Needs(probes)
	tried := slices.DeleteFunc(slices.Clone(needs), func(p Probe) bool { return p.Statement == "" })
	findings, account, err := Missing(ctx, db, tried)
	if err != nil {
		return nil, err
	}
	if len(tried) < len(needs) { // MariaDB, see Needs
		streams, err := mayStream(ctx, db)
		if err != nil {
			return nil, fmt.Errorf("check grants: %w", err)
		}
		if !streams {
			findings = append(findings, missing(account, needs[len(needs)-1]))
		}
	}
	for k := range findings {
		findings[k].What += i.Platform.grantor()
	}
	if findings == nil {
		findings = []Finding{{Severity: OK, Subject: "grants", What: "the account has every privilege it needs"}}
	}
	return findings, nil
}

// Needs are the privileges of the reader, and those of the probes, in the order in which Grants reports them. The last one has no
// Statement where the server has none that needs it: REPLICATION SLAVE of MariaDB.
func (i Info) Needs(probes []Probe) []Probe {
	monitor := Probe{Privileges: "REPLICATION CLIENT", On: "*.*", Statement: "SHOW BINARY LOGS"}
	stream := Probe{Privileges: "REPLICATION SLAVE", On: "*.*", Statement: "SHOW BINLOG EVENTS LIMIT 1"}
	if i.Flavor == outbox.MariaDB {
		stream.Statement = ""
		if i.AtLeast(10, 5, 2) {
			monitor.Privileges = "BINLOG MONITOR"
		}
	}
	return slices.Concat([]Probe{monitor}, probes, []Probe{stream})
}

// Narrowing is the privilege to keep status updates small in the binlog, which the relay can do without; "" where only SUPER has it.
func (i Info) Narrowing() string {
	switch {
	case i.Flavor == outbox.MariaDB && i.AtLeast(10, 5, 2):
		return "BINLOG ADMIN"
	case i.Flavor == outbox.MySQL && i.AtLeast(8, 0, 14):
		return "SESSION_VARIABLES_ADMIN"
	}
	return ""
}

// Grant is the statement that gives an account, as CURRENT_USER() writes it, the privileges.
func (p Probe) Grant(account string) string {
	return fmt.Sprintf("GRANT %s ON %s TO %s", p.Privileges, p.On, QuoteAccount(account))
}

// Missing runs probes and returns a fault, whose Fix is the GRANT, for each that the account of the pool may not run. Where another session's lock keeps
// the answer back, the privilege is not checked: a start waits for no table, because it would keep all others waiting.
func Missing(ctx context.Context, db *sql.DB, probes []Probe) (findings []Finding, account string, err error) {
	if err := db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&account); err != nil {
		return nil, "", fmt.Errorf("check grants: %w", err)
	}
	for _, probe := range probes {
		refusal, err := probe.try(ctx, db)
		if refusal != nil && err == nil {
			probe, err = probe.narrow(ctx, db, refusal)
		}
		if LockWait(err) {
			findings = append(findings, Finding{
				Severity: NotChecked, Subject: "grants", What: fmt.Sprintf("another session has locked %s: whether the account has %s on it", probe.On, probe.Privileges),
			})
			continue
		}
		if err != nil {
			return nil, account, fmt.Errorf("check grants: %s on %s: %w", probe.Privileges, probe.On, err)
		}
		if refusal != nil {
			findings = append(findings, missing(account, probe))
		}
	}
	return findings, account, nil
}

// try runs the statement. refusal is the server's answer when the account may not.
func (p Probe) try(ctx context.Context, db *sql.DB) (refusal, err error) {
	rows, err := db.QueryContext(ctx, p.Statement, p.Args...)
	if err == nil {
		err = rows.Close()
	}
	switch Code(err) {
	case 1044, 1142, 1143, 1227: // database, table, column, global privilege
		return err, nil
	case 1381, 1665: // NO_BINARY_LOGGING, BINLOG_STMT_MODE_AND_ROW_ENGINE: not a question of grants; Check reports them
		return nil, nil
	}
	return nil, err
}

var denied = regexp.MustCompile(`^([A-Z]+) command denied`)

// narrow removes a privilege that the account has from the probe, so that the advice does not name a privilege that is granted
// already. refusal is the answer to the probe. The server checks UPDATE first, so that a lack of SELECT means that there is
// UPDATE.
func (p Probe) narrow(ctx context.Context, db *sql.DB, refusal error) (Probe, error) {
	var answer *mysql.MySQLError
	if p.Privileges != "SELECT, UPDATE" || !errors.As(refusal, &answer) {
		return p, nil
	}
	match := denied.FindStringSubmatch(answer.Message)
	if match == nil {
		return p, nil
	}
	if match[1] == "UPDATE" {
		reads := Probe{Statement: "SELECT 1 FROM " + p.On + " LIMIT 0"}
		if refusal, err := reads.try(ctx, db); err != nil || refusal != nil {
			return p, err
		}
	}
	p.Privileges = match[1]
	return p, nil
}

func missing(account string, p Probe) Finding {
	grant := p.Grant(account)
	return Finding{
		Severity: Fault, Subject: "grants", What: fmt.Sprintf("the account %s may not: %s on %s", account, p.Privileges, p.On), Fix: grant, SQL: grant,
	}
}

// QuoteAccount writes an account, as CURRENT_USER() gives it, for a statement.
func QuoteAccount(account string) string {
	at := strings.LastIndexByte(account, '@')
	if at < 0 {
		return quoteText(account) // a role
	}
	return quoteText(account[:at]) + "@" + quoteText(account[at+1:])
}

var (
	streams = regexp.MustCompile(`^GRANT (.*\b(REPLICATION SLAVE|REPLICATION REPLICA)\b.*|ALL PRIVILEGES) ON \*\.\* `)
	creates = regexp.MustCompile(`^GRANT (.*\bCREATE USER\b.*|ALL PRIVILEGES) ON \*\.\* `)
)

// mayStream reads SHOW GRANTS, which on MariaDB lists what enabled roles grant too.
func mayStream(ctx context.Context, db *sql.DB) (bool, error) { return hasGrant(ctx, db, streams) }

// MayCreateUsers reports whether SHOW GRANTS says that the account of the pool may create others.
func MayCreateUsers(ctx context.Context, db *sql.DB) (bool, error) { return hasGrant(ctx, db, creates) }

func hasGrant(ctx context.Context, db *sql.DB, granted *regexp.Regexp) (bool, error) {
	rows, err := Show(ctx, db, "SHOW GRANTS")
	return slices.ContainsFunc(rows, func(row map[string]string) bool {
		for _, grant := range row { // the one column, whose name has the account in it
			return granted.MatchString(grant)
		}
		return false
	}), err
}
