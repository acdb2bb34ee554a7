package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/test/relay"
	"github.com/canal-outbox/canal-outbox/test/servers"
)

// Names of the demo's objects in the database.
const (
	schemaName    = "shop"
	tableName     = "shop.t_local_message"
	presetName    = "outbox"
	relayUser     = "canal_outbox"
	relayPassword = "demo-only"
)

// database is the private server and the application's connections to it.
type database struct {
	*testkit.Database
	db      *sql.DB
	version string
}

// startDatabase starts an empty server with the application's tables and the relay's account. say announces slow steps.
func startDatabase(ctx context.Context, flavor testkit.Flavor, say func(string, ...any)) (_ *database, err error) {
	if flavor == "" {
		flavor = foundFlavor(ctx)
	}
	announceInstallation(ctx, flavor, say)
	server, err := testkit.StartDatabase(ctx, testkit.DatabaseOptions{Flavor: flavor})
	if err != nil {
		return nil, err
	}
	d := &database{Database: server}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	// Parameters are written into the statements, which saves preparing each of them.
	if d.db, err = sql.Open("mysql", d.DSN("root", "", schemaName)+"&interpolateParams=true"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	d.db.SetMaxIdleConns(workers + 2)
	return d, nil
}

// prepare creates the schema and the account.
func (d *database) prepare(ctx context.Context) error {
	outbox, err := migrations.DDL(presetName, tableName)
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"CREATE DATABASE " + schemaName,
		"CREATE TABLE " + schemaName + `.orders (number BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(64) NOT NULL,
			cents BIGINT NOT NULL, created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)) ENGINE = InnoDB`,
		outbox,
	} {
		if _, err := d.Root().ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the demo's tables: %w", err)
		}
	}
	if err := d.Root().QueryRowContext(ctx, "SELECT VERSION()").Scan(&d.version); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	return d.CreateRelayUser(ctx, relayUser, relayPassword, tableName)
}

// Close stops the server and removes its data.
func (d *database) Close() error {
	var err error
	if d.db != nil {
		err = d.db.Close()
	}
	return errors.Join(err, d.Database.Close())
}

// title is the server's name for people.
func (d *database) title() string {
	version, _, _ := strings.Cut(d.version, "-")
	return map[testkit.Flavor]string{testkit.MySQL: "MySQL ", testkit.MariaDB: "MariaDB "}[d.Flavor] + version
}

// statusNames are the codes of the preset.
var statusNames = map[int]string{0: "PENDING", 1: "SENDING", 2: sentStatus, 3: "FAILED"}

func statusName(code int) string {
	if name, ok := statusNames[code]; ok {
		return name
	}
	return "status " + strconv.Itoa(code)
}

// rows counts the outbox rows by status name.
func (d *database) rows(ctx context.Context) (map[string]int, error) {
	type count struct{ code, n int }
	counts, err := relay.Select(ctx, d.db, func(c *count) []any { return []any{&c.code, &c.n} },
		"SELECT status, COUNT(*) FROM t_local_message GROUP BY status")
	if err != nil {
		return nil, fmt.Errorf("count the outbox rows: %w", err)
	}
	byStatus := map[string]int{}
	for _, c := range counts {
		byStatus[statusName(c.code)] = c.n
	}
	return byStatus, nil
}

// unsent lists rows that are not SENT, each with its state, at most a hundred.
func (d *database) unsent(ctx context.Context) (all []string, err error) {
	type row struct {
		kind, key, reason string
		code              int
	}
	rows, err := relay.Select(ctx, d.db, func(r *row) []any { return []any{&r.kind, &r.key, &r.code, &r.reason} },
		"SELECT biz_type, biz_key, status, COALESCE(fail_reason, '') FROM t_local_message WHERE status <> 2 ORDER BY id LIMIT 100")
	if err != nil {
		return nil, fmt.Errorf("list the unsent rows: %w", err)
	}
	for _, r := range rows {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s:%s (%s) %s", r.kind, r.key, statusName(r.code), r.reason)))
	}
	return all, nil
}

// has reports whether a message is in the table.
func (d *database) has(ctx context.Context, id string) (bool, error) {
	kind, key, _ := strings.Cut(id, ":")
	var n int
	err := d.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM t_local_message WHERE biz_type = ? AND biz_key = ?", kind, key).Scan(&n)
	return n > 0, err
}

// foundFlavor returns the flavor of this machine's server, MySQL first; without a server MariaDB, because every distribution has
// packages of it.
func foundFlavor(ctx context.Context) testkit.Flavor {
	if flavor := mySQL(ctx); flavor == testkit.MySQLOwn {
		return flavor
	}
	return testkit.MariaDB
}

// mySQL returns the flavor of this machine's MySQL, or of the one that is unpacked without it.
func mySQL(ctx context.Context) testkit.Flavor {
	if testkit.OnThisMachine(ctx, testkit.MySQL) {
		return testkit.MySQLOwn
	}
	return testkit.MySQL
}

// announceInstallation logs when the start must install the server.
func announceInstallation(ctx context.Context, flavor testkit.Flavor, say func(string, ...any)) {
	cache, err := servers.Cache()
	if err != nil || testkit.OnThisMachine(ctx, flavor) {
		return // the start reports a missing cache
	}
	if flavor == testkit.MariaDB {
		say("No database server is installed: installing the distribution's package mariadb-server-core (needs root or sudo) ...")
	} else if unpacked, _ := filepath.Glob(filepath.Join(cache, "mysql-*", "bin", "mysqld")); len(unpacked) == 0 {
		say("MySQL is not installed: unpacking it below %s, once (80 MB; installs Java and Maven when they are missing) ...", cache)
	}
}
