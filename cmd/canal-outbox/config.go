package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/config"
)

func newConfig(c *cli) *cobra.Command {
	return group("config", "check and print the configuration", newConfigValidate(c), newConfigPrint(c))
}

func newConfigValidate(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "report everything that is wrong with the configuration", Args: cobra.NoArgs,
		Long: `Checks the file, the environment and the files of secrets and TLS. It asks neither the database nor the
broker; ` + "`canal-outbox doctor`" + ` does.`,
		Example: "  canal-outbox config validate --config canal-outbox.yaml",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			if missing := cfg.MissingFiles(); missing != nil {
				return &config.Faults{File: c.configPath, Faults: missing}
			}
			return c.done("%s is valid, %d table(s)", c.configPath, len(cfg.Tables))
		},
	}
}

func newConfigPrint(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "print the effective configuration, secrets masked", Args: cobra.NoArgs,
		Example: "  canal-outbox config print\n  canal-outbox config print -o json",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			printed, err := cfg.Print()
			if err != nil {
				return err
			}
			if c.format == formatJSON {
				if printed, err = yaml.YAMLToJSON(printed); err != nil {
					return fmt.Errorf("print the configuration: %w", err)
				}
			}
			return c.show(json.RawMessage(printed), func(w io.Writer) { _, _ = w.Write(printed) }) // its error shows at the flush
		},
	}
}
