package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/canal-outbox/canal-outbox/migrations"
)

// The states of an order.
const (
	Unpaid    = 0
	Paid      = 1
	Cancelled = 2
)

// tables are the application's own.
var tables = []string{
	// An order of quantity 0 is a request that was closed before its order was written: see Void.
	`CREATE TABLE t_order (
		order_no VARCHAR(64) NOT NULL PRIMARY KEY, user_id BIGINT NOT NULL, product_id INT NOT NULL, quantity INT NOT NULL,
		amount BIGINT NOT NULL, coupon VARCHAR(64) NULL, epoch INT NOT NULL, status TINYINT NOT NULL DEFAULT 0,
		created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), KEY idx_product (product_id, status), KEY idx_status (status, order_no)) ENGINE = InnoDB`,
	// The stock consumer writes it, one message at a time.
	`CREATE TABLE t_stock (
		product_id INT NOT NULL PRIMARY KEY, total INT NOT NULL, locked INT NOT NULL DEFAULT 0, sold INT NOT NULL DEFAULT 0,
		available INT AS (total - locked - sold) STORED, version INT NOT NULL DEFAULT 0) ENGINE = InnoDB`,
	// How often the stock in Redis was recreated. Orders read it, only the recreation writes it: see Place.
	`CREATE TABLE t_stock_epoch (product_id INT NOT NULL PRIMARY KEY, epoch INT NOT NULL DEFAULT 0) ENGINE = InnoDB`,
	// The last value that the check read from Redis, for people. It is not used: the orders decide.
	`CREATE TABLE t_stock_flush (product_id INT NOT NULL PRIMARY KEY, available INT NOT NULL, flushed_at DATETIME(3) NOT NULL) ENGINE = InnoDB`,
	// Effects of the consumers. A notification that was sent twice is two rows.
	`CREATE TABLE t_points (order_no VARCHAR(64) NOT NULL PRIMARY KEY, user_id BIGINT NOT NULL, points BIGINT NOT NULL) ENGINE = InnoDB`,
	// A coupon is granted for an order; redeemed_by is the order that was placed with it.
	`CREATE TABLE t_coupon (
		order_no VARCHAR(64) NOT NULL PRIMARY KEY, user_id BIGINT NOT NULL, cents INT NOT NULL, redeemed_by VARCHAR(64) NULL) ENGINE = InnoDB`,
	`CREATE TABLE t_campaign (id INT NOT NULL PRIMARY KEY, cents INT NOT NULL) ENGINE = InnoDB`,
	`INSERT INTO t_campaign VALUES (1, 500)`,
	`CREATE TABLE t_notification (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, message_id VARCHAR(64) NOT NULL) ENGINE = InnoDB`,
	`CREATE TABLE t_dropped (consumer VARCHAR(64) NOT NULL, message_id VARCHAR(64) NOT NULL) ENGINE = InnoDB`,
	// Messages that a consumer could not handle, from the dead-letter topic. It accepts what the tables above refuse.
	`CREATE TABLE t_dead_letter (
		consumer VARCHAR(64) NOT NULL, message_id VARBINARY(512) NOT NULL, kind VARCHAR(512) NOT NULL, body LONGTEXT NOT NULL, reason LONGTEXT NOT NULL,
		state VARCHAR(16) NOT NULL DEFAULT 'open', PRIMARY KEY (consumer, message_id)) ENGINE = InnoDB`,
}

// Prepare creates the application's tables, with products 1 to n and total pieces of each.
func Prepare(ctx context.Context, db *sql.DB, products, total int) error {
	statements := append([]string{}, tables...)
	for preset, table := range map[string]string{"order-chain": "t_local_message", "inbox_message": "inbox_message"} {
		ddl, err := migrations.DDL(preset, table)
		if err != nil {
			return err
		}
		statements = append(statements, ddl)
	}
	for product := 1; product <= products; product++ {
		statements = append(statements,
			fmt.Sprintf("INSERT INTO t_stock (product_id, total) VALUES (%d, %d)", product, total),
			fmt.Sprintf("INSERT INTO t_stock_epoch (product_id) VALUES (%d)", product))
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the shop's tables: %w", err)
		}
	}
	return nil
}

// Transact runs work in a transaction. An error of work rolls it back.
func Transact(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Querier is a *sql.DB or a *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// List reads the rows of a query. columns says where the columns of a row go.
func List[T any](ctx context.Context, db Querier, columns func(row *T) []any, query string, args ...any) (all []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var row T
		if err := rows.Scan(columns(&row)...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

// IsDuplicate reports whether a statement failed because the key is taken.
func IsDuplicate(err error) bool {
	var refused *mysql.MySQLError
	return errors.As(err, &refused) && refused.Number == 1062
}
