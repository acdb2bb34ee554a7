package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
)

func newMigrate(c *cli) *cobra.Command {
	var preset, name string
	var printOnly bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "create the tables, or print their SQL", Args: cobra.NoArgs,
		Long: `Creates the missing tables of the configuration, with the layout of their preset, the tables that old
rows move to if "retention" is set, and the table of the lease by which one of several relays is
active. Existing tables are not changed, so the command can be repeated. A pattern means the tables that
match it on the server now. The account needs CREATE on what is missing (and ALTER
for the log of FAILED rows); --print prints the SQL of what is missing for an administrator, which can be
repeated too. With --preset the SQL of one preset is printed, and no configuration is needed.`,
		Example: `  canal-outbox migrate --print
  canal-outbox migrate --preset t_local_message --table shop.t_local_message --print`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if preset != "" {
				if !printOnly {
					return operator.Usagef("--preset only prints: add --print, or name the table in the configuration and leave --preset out")
				}
				if name == "" {
					name = preset
				}
				all, err := app.DDL([]config.Table{{Name: name, Preset: preset}})
				if err != nil {
					return err
				}
				return c.printMigrations(all)
			}
			if name != "" {
				return operator.Usagef("--table needs --preset")
			}
			cfg, err := c.load()
			if err != nil {
				return err
			}
			all, err := app.Migrations(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if printOnly {
				return c.printMissing(cmd.Context(), cfg, all)
			}
			return c.migrate(cmd.Context(), cfg, all)
		},
	}
	cmd.Flags().StringVar(&preset, "preset", "", "`name` of a layout, instead of the configuration")
	cmd.Flags().StringVar(&name, "table", "", "`schema.table` for the SQL of --preset")
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the SQL and change nothing")
	return cmd
}

// printMissing prints what is missing. If the server does not answer it prints everything, and says so on standard error.
func (c *cli) printMissing(ctx context.Context, cfg *config.Config, all []app.Migration) error {
	if err := app.MissingTables(ctx, cfg, all); err != nil {
		line(c.err, "the existing tables could not be read (%v): all are printed, the statements do not change a table that exists", err)
	}
	return c.printMigrations(all)
}

func (c *cli) printMigrations(all []app.Migration) error {
	return c.show(all, func(w io.Writer) {
		for _, m := range all {
			if m.Status == "exists" {
				line(w, "-- %s is there", m.Table)
			} else {
				line(w, "%s", strings.TrimSpace(m.SQL))
			}
		}
	})
}

func (c *cli) migrate(ctx context.Context, cfg *config.Config, all []app.Migration) error {
	refused := app.Migrate(ctx, cfg, all)
	texts := map[string]string{"exists": "is there", "applied": "was made", "failed": "could not be created", "printed": "was not looked at"}
	return errors.Join(refused, c.show(all, func(w io.Writer) {
		for _, m := range all {
			line(w, "%s\tpreset %s\t%s", m.Table, m.Preset, texts[m.Status])
		}
	}))
}
