package server

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const u1, u2 = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fa47-71ca-11e1-9e33-c80aa9429562"

// A09, A10, A11: what is the same server, what a failover, what a gap, and what is refused.
func TestA09_CheckIdentity(t *testing.T) {
	mysqlID := func(uuid string) ID { return ID{Flavor: outbox.MySQL, UUID: uuid, ServerID: 1} }
	mariaID := func(id uint32) ID { return ID{Flavor: outbox.MariaDB, ServerID: id} }
	at := func(file string, offset uint64, gtids string) outbox.Position {
		return outbox.Position{File: file, Offset: offset, GTIDs: gtids}
	}
	for _, c := range []struct {
		name       string
		recorded   ID
		checkpoint outbox.Position
		now        ID
		executed   string
		end        outbox.Position
		want       Relation
	}{
		{"nothing recorded", ID{}, outbox.Position{}, mysqlID(u1), u1 + ":1-5", outbox.Position{}, Same},
		{"other flavor", mysqlID(u1), at("b.000001", 4, ""), mariaID(1), "0-1-5", outbox.Position{}, Foreign},

		{"same, further", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u1), u1 + ":1-9", outbox.Position{}, Same},
		{"A10 same, shorter", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u1), u1 + ":1-4", outbox.Position{}, Shorter},
		{"A10 same, all GTIDs reset", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u1), "", at("b.000001", 4, ""), Shorter},
		{"failover", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u2), u1 + ":1-5," + u2 + ":1", outbox.Position{}, Failover},
		{"failover to one that lacks some", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u2), u1 + ":1-4," + u2 + ":1", outbox.Position{}, Foreign},
		{"A09 another cluster", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u2), u2 + ":1-100", outbox.Position{}, Foreign},
		{"A09 an empty one", mysqlID(u1), at("b.000001", 4, u1+":1-5"), mysqlID(u2), "", outbox.Position{}, Foreign},
		{"tagged", mysqlID(u1), at("b.000001", 4, u1+":1-5:app:1"), mysqlID(u1), u1 + ":1-5", outbox.Position{}, Shorter},
		{"damaged", mysqlID(u1), at("b.000001", 4, "x"), mysqlID(u1), u1 + ":1-5", outbox.Position{}, Foreign},

		{"no GTIDs, further", mysqlID(u1), at("b.000009", 4, ""), mysqlID(u1), "", at("b.000010", 4, ""), Same},
		{"no GTIDs, shorter", mysqlID(u1), at("b.000010", 9, ""), mysqlID(u1), "", at("b.000010", 4, ""), Shorter},
		{"A11 no GTIDs, other server", mysqlID(u1), at("b.000001", 4, ""), mysqlID(u2), "", at("b.000010", 4, ""), Foreign},

		{"MariaDB same", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(1), "0-1-9", outbox.Position{}, Same},
		{"MariaDB same, was replica", mariaID(1), at("b.000001", 4, "0-2-5"), mariaID(1), "0-2-5,0-1-9", outbox.Position{}, Same},
		{"MariaDB shorter", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(1), "0-1-4", outbox.Position{}, Shorter},
		{"MariaDB reset", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(1), "", at("b.000001", 4, ""), Shorter},
		{"MariaDB failover", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(2), "0-2-7,0-1-5", outbox.Position{}, Failover},
		{"MariaDB failover, replica lagged", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(2), "0-2-7,0-1-4", outbox.Position{}, Foreign},
		{"MariaDB, busier cluster in the same domain", mariaID(1), at("b.000001", 4, "0-1-5"), mariaID(2), "0-2-700", outbox.Position{}, Foreign},
		{"MariaDB, other domains", mariaID(1), at("b.000001", 4, "0-1-5,7-1-3"), mariaID(1), "3-1-9", outbox.Position{}, Foreign},
		{"MariaDB, one domain behind", mariaID(1), at("b.000001", 4, "0-1-5,7-1-3"), mariaID(1), "0-1-5,7-1-2", outbox.Position{}, Shorter},
	} {
		got, why := CheckIdentity(c.recorded, c.checkpoint, Info{ID: c.now, Executed: c.executed}, c.end)
		if got != c.want {
			t.Errorf("%s: %v (%s), want %v", c.name, got, why, c.want)
		}
		if got != Same && why == "" {
			t.Errorf("%s: no reason is given", c.name)
		}
	}
}

// A38, A44: versions as servers print them, and the statement each one understands.
func TestA44_Versions(t *testing.T) {
	for _, c := range []struct{ version, uuid, statement string }{
		{"5.7.44-log", u1, "SHOW MASTER STATUS"},
		{"8.0.36", u1, "SHOW MASTER STATUS"},
		{"8.4.0", u1, "SHOW BINARY LOG STATUS"},
		{"9.7.4", u1, "SHOW BINARY LOG STATUS"},
		{"10.4.33-MariaDB-log", "", "SHOW MASTER STATUS"},
		{"5.5.5-10.11.6-MariaDB", "", "SHOW BINLOG STATUS"},
		{"11.8.2-MariaDB-ubu2404", "", "SHOW BINLOG STATUS"},
	} {
		info, err := variables{"version": c.version, "server_uuid": c.uuid, "server_id": "1", "log_bin": "ON"}.info()
		if err != nil || info.endStatement() != c.statement {
			t.Errorf("%s: %+v, %s, %v", c.version, info, info.endStatement(), err)
		}
		if info.Major < 5 || c.version == "5.5.5-10.11.6-MariaDB" && info.Major != 10 {
			t.Errorf("%s is taken for %d.%d.%d", c.version, info.Major, info.Minor, info.Patch)
		}
	}
	for _, v := range []variables{{}, {"server_id": "1"}, {"server_id": "1", "server_uuid": u1, "version": "x"}, {"server_id": "x", "server_uuid": u1}} {
		if info, err := v.info(); err == nil {
			t.Errorf("%v is taken for %+v", v, info)
		}
	}
}
