package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/admin"
	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/migrations"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

// migration is one table's DDL.
type migration struct {
	Table  string `json:"table"`
	Preset string `json:"preset"`
	SQL    string `json:"sql"`
	Status string `json:"status"` // printed, applied

	statements []string // of SQL
}

func newMigrate(c *cli) *cobra.Command {
	var preset, name string
	var printOnly bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "create the tables, or print their SQL", Args: cobra.NoArgs,
		Long: `Runs CREATE TABLE IF NOT EXISTS for each table of the configuration, with the layout of its
preset, makes the tables that old rows move to when "retention" says so, and the table of the lease by
which one of several relays is active. A pattern stands for the tables that it matches now, which are
asked of the server, also for --print: they are there, and get the tables that their rows move to. The account needs the
CREATE right (and ALTER for the log of FAILED rows); a table that exists is left as it is. With --preset
the SQL of one preset is printed, and no configuration is needed.`,
		Example: `  canal-outbox migrate --print
  canal-outbox migrate --preset t_local_message --table shop.t_local_message --print`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if preset != "" {
				if !printOnly {
					return admin.Usagef("--preset only prints: add --print, or name the table in the configuration and leave --preset out")
				}
				if name == "" {
					name = preset
				}
				all, err := ddl([]config.Table{{Name: name, Preset: preset}})
				if err != nil {
					return err
				}
				return c.printMigrations(all)
			}
			if name != "" {
				return admin.Usagef("--table needs --preset")
			}
			cfg, err := c.load()
			if err != nil {
				return err
			}
			all, err := all(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if printOnly {
				return c.printMigrations(all)
			}
			return c.migrate(cmd.Context(), cfg, all)
		},
	}
	cmd.Flags().StringVar(&preset, "preset", "", "`name` of a layout, instead of the configuration")
	cmd.Flags().StringVar(&name, "table", "", "`schema.table` for the SQL of --preset")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the SQL and change nothing")
	return cmd
}

// all is what a configuration needs. Tables that a pattern matches are there; what is made are those that their rows move to.
func all(ctx context.Context, cfg *config.Config) ([]migration, error) {
	named, matched, err := app.Matching(ctx, cfg)
	if err != nil {
		return nil, err
	}
	all, err := ddl(named)
	if err != nil {
		return nil, err
	}
	for _, t := range slices.Concat(named, matched) {
		names, statements := app.MovedTo(cfg, &t)
		for i, name := range names {
			all = append(all, migration{Table: name, Preset: t.Preset, SQL: strings.Join(statements[i], ";\n") + ";", statements: statements[i]})
		}
	}
	if len(cfg.Tables) == 0 {
		return all, nil
	}
	first := cfg.Tables[0]
	if first.IsPattern() {
		first = matched[0]
	}
	name, text, err := app.LeaseTable(cfg, first.Name)
	if name != "" && err == nil {
		all = append(all, migration{Table: name, Preset: "lease", SQL: text, statements: []string{text}})
	}
	return all, err
}

func ddl(tables []config.Table) ([]migration, error) {
	var all []migration
	for _, t := range tables {
		if t.IsPattern() {
			return nil, admin.Usagef("--table %s is a pattern: name each table", t.Name)
		}
		text, err := migrations.DDL(t.Preset, t.Name)
		if err != nil {
			return nil, admin.Usagef("%v", err)
		}
		all = append(all, migration{Table: t.Name, Preset: t.Preset, SQL: text, statements: []string{text}})
	}
	return all, nil
}

func (c *cli) printMigrations(all []migration) error {
	for i := range all {
		all[i].Status = "printed"
	}
	return c.show(all, func(w io.Writer) {
		for _, m := range all {
			line(w, "%s", strings.TrimSpace(m.SQL))
		}
	})
}

func (c *cli) migrate(ctx context.Context, cfg *config.Config, all []migration) (err error) {
	db, err := app.OpenDatabase(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for i, m := range all {
		if err := apply(ctx, db, m); err != nil {
			return err
		}
		all[i].Status = "applied"
	}
	return c.show(all, func(w io.Writer) {
		for _, m := range all {
			line(w, "%s\tpreset %s\tis there", m.Table, m.Preset)
		}
	})
}

func apply(ctx context.Context, db *sql.DB, m migration) error {
	const twice = 1060 // DUP_FIELDNAME: the statement has added its column before
	for _, statement := range m.statements {
		if _, err := db.ExecContext(ctx, statement); err != nil && server.Code(err) != twice {
			return fmt.Errorf("create table %s: %w (the account needs CREATE on it; `canal-outbox migrate --print` shows the SQL for somebody who may)", m.Table, err)
		}
	}
	return nil
}
