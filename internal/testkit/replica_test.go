package testkit

import (
	"context"
	"crypto/tls"
	"database/sql"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func TestReplicaFollowsAndIsPromoted(t *testing.T) {
	startsServers(t)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			primary := NewDatabase(t, DatabaseOptions{Flavor: flavor})
			replica := NewDatabase(t, DatabaseOptions{Flavor: flavor})
			Exec(t, primary.Root(), "CREATE DATABASE shop")
			Exec(t, primary.Root(), "CREATE TABLE shop.t (id INT PRIMARY KEY)")
			Must(t, replica.ReplicateFrom(ctx, primary))
			Exec(t, primary.Root(), "INSERT INTO shop.t VALUES (1), (2)")
			Must(t, replica.CatchUp(ctx, primary))
			if n := count(t, replica.Root(), "SELECT COUNT(*) FROM shop.t"); n != 2 {
				t.Fatalf("%d rows on the replica", n)
			}
			Must(t, primary.Kill())
			Must(t, replica.Promote(ctx))
			Exec(t, replica.Root(), "INSERT INTO shop.t VALUES (3)")
		})
	}
}

func TestDatabaseTLS(t *testing.T) {
	startsServers(t)
	certificates, err := NewCertificates()
	Must(t, err)
	strangers, err := NewCertificates()
	Must(t, err)
	for _, flavor := range Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			flavor = Needs(t, flavor, "8.0", "TLS 1.2")
			d := NewDatabase(t, DatabaseOptions{Flavor: flavor, TLS: certificates, Args: []string{"--require-secure-transport=OFF"}})
			cfg := d.config("root", "", "")
			cfg.TLS = &tls.Config{RootCAs: certificates.Pool(), ServerName: "127.0.0.1"}
			connector, err := mysql.NewConnector(cfg)
			Must(t, err)
			db := sql.OpenDB(connector)
			defer db.Close()
			var name, cipher string
			Must(t, db.QueryRow("SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
			if cipher == "" {
				t.Error("the connection is not encrypted")
			}
			cfg.TLS = &tls.Config{RootCAs: strangers.Pool(), ServerName: "127.0.0.1"}
			connector, err = mysql.NewConnector(cfg)
			Must(t, err)
			other := sql.OpenDB(connector)
			defer other.Close()
			if err := other.Ping(); err == nil {
				t.Error("a certificate of another authority was accepted")
			}
		})
	}
}
