// Package server contains what depends on the MySQL or MariaDB server: how to open pools of connections to it, what flavour and version it
// is, who it is, where its log ends and begins, and what its errors mean. Version differences live here and nowhere else, and so does
// what a managed service allows its customers: marks in platform.go, cures in cures.go.
//
// Guarantee: a pool opened here hands out no connection whose server has not passed the identity guard. The package owns
// no goroutine beyond those of database/sql.
package server

import (
	"strings"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// ID identifies a server, as recorded next to the checkpoint.
type ID struct {
	Flavor   outbox.Flavor `json:"flavor"`
	UUID     string        `json:"uuid"`      // MySQL: @@server_uuid, lower case; MariaDB: "" (it has none that lasts)
	ServerID uint32        `json:"server_id"` // @@server_id
}

// Same reports whether two IDs are of one server, as far as IDs can show that: MariaDB has only the server_id.
func (id ID) Same(other ID) bool {
	return id.Flavor == other.Flavor && strings.EqualFold(id.UUID, other.UUID) && (id.UUID != "" || id.ServerID == other.ServerID)
}
