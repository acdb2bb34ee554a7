package app

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// serverConfig translates the source. The error is of the files it names.
func serverConfig(s config.Source) (server.Config, error) {
	c := server.Config{Address: s.Address, User: s.User, Password: s.Password}
	if err := c.SetTLS(server.TLSMode(s.TLS.Mode), server.TLSFiles{CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key}); err != nil {
		return server.Config{}, fmt.Errorf("source.tls: %w", err)
	}
	return c, nil
}

// serverIDs are the ids that are made up: above what people number their servers with, below the sign bit.
const firstServerID, serverIDs = 1 << 30, 1 << 30

// serverID is the configured one, or one that stays the same over restarts on this host and differs between relays: made
// of the address, the user, the host and the state directory.
func serverID(cfg *config.Config) uint32 {
	if cfg.Source.ServerID != 0 {
		return cfg.Source.ServerID
	}
	host, dir := place(cfg)
	h := fnv.New32a()
	h.Write([]byte(strings.Join([]string{cfg.Source.Address, cfg.Source.User, host, dir}, "\x00"))) // hash.Hash never fails
	return firstServerID + h.Sum32()%serverIDs
}

// mappings translates the tables. The configuration was validated, so an error is a fault of this program.
func mappings(cfg *config.Config) ([]table.Mapping, error) {
	var all []table.Mapping
	for _, t := range cfg.Tables {
		m, err := table.Preset(t.Preset)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.Name, err)
		}
		m.Schema, m.Name, _ = table.SplitName(t.Name)
		t.Options(&m, cfg.Retry)
		m.Expiries = expiries(cfg.RetentionOf(&t), max(t.Retry.FailedEvery, cfg.Retry.FailedEvery) > 0)
		for name, column := range t.Columns {
			role, err := table.ParseColumn(name)
			if err != nil {
				return nil, fmt.Errorf("table %s: %w", t.Name, err)
			}
			m.Set(role, column)
		}
		for name, code := range t.Codes {
			m.SetCode(name, code)
		}
		if !t.Topic.IsZero() {
			rule, err := t.Topic.Rule()
			if err != nil {
				return nil, fmt.Errorf("table %s: topic %w", t.Name, err)
			}
			m.SetTopic(rule)
		}
		all = append(all, m)
	}
	return all, nil
}
