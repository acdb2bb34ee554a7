package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// variables are the server's, by lower-case name. A variable the server does not know is missing: SHOW asks for many at
// once without failing over one, and both flavors and all versions answer it.
type variables map[string]string

func showVariables(scope string, names ...string) string {
	return "SHOW " + scope + " VARIABLES WHERE Variable_name IN ('" + strings.Join(names, "','") + "')"
}

func (v variables) on(name string) bool {
	value := strings.ToUpper(v[name])
	return value == "ON" || value == "1" || value == "YES"
}

func (v variables) id() (ID, error) {
	if p := v.platform(); p == TiDB || p == OceanBase && v["server_uuid"] == "" {
		return ID{}, &NoBinlogError{Platform: p, Version: v["version"]}
	}
	serverID, err := strconv.ParseUint(v["server_id"], 10, 32)
	if err != nil {
		return ID{}, fmt.Errorf("the server gives %q as its server_id", v["server_id"])
	}
	id := ID{Flavor: outbox.MySQL, UUID: strings.ToLower(v["server_uuid"]), ServerID: uint32(serverID)}
	if strings.Contains(strings.ToLower(v["version"]), "mariadb") {
		id.Flavor, id.UUID = outbox.MariaDB, ""
	} else if id.UUID == "" {
		return ID{}, errors.New("the server has neither a server_uuid nor the version of a MariaDB: it is not supported")
	}
	return id, nil
}

// identityVariables asks on one raw connection, before the pool has it.
func identityVariables(ctx context.Context, conn driver.Conn) (variables, error) {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, fmt.Errorf("the driver's connection (%T) runs no queries", conn)
	}
	rows, err := queryer.QueryContext(ctx,
		showVariables("GLOBAL", append(markNames(), "server_id", "server_uuid", "read_only", "super_read_only")...), nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	vars, row := variables{}, make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return vars, nil
		} else if err != nil {
			return nil, err
		}
		vars[strings.ToLower(text(row[0]))] = text(row[1])
	}
}

func text(v driver.Value) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// queryVariables runs a SHOW of names and values through a connection of a pool.
func queryVariables(ctx context.Context, conn *sql.Conn, show string) (variables, error) {
	rows, err := Show(ctx, conn, show)
	vars := variables{}
	for _, row := range rows {
		vars[strings.ToLower(row["variable_name"])] = row["value"]
	}
	return vars, err
}
