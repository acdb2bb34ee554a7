package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/translate"
	"github.com/canal-outbox/canal-outbox/outbox/server"
)

func newDoctor(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "check everything that can be wrong before the first message", Args: cobra.NoArgs,
		Long: `Looks at the server, the account's grants, the tables and their indexes, the broker and its
topics, clocks, state directory and disk, and changes nothing. Each line is ok, a warning or a
fault, why, and what fixes it. It fails when there is a fault.`,
		Example: "  canal-outbox doctor --config canal-outbox.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.load()
			if err != nil {
				return err
			}
			findings := app.Doctor(cmd.Context(), cfg)
			if err := c.explain(append([]server.Finding{}, findings...), func(w io.Writer) { writeFindings(w, findings) }); err != nil {
				return err
			}
			if c.format != formatJSON {
				writeStatements(c.out, c.words, findings)
			}
			faults := 0
			for _, f := range findings {
				if f.Severity == server.Fault {
					faults++
				}
			}
			if faults > 0 {
				if app.Running(cmd.Context(), cfg) {
					return fmt.Errorf("%d fault(s), and a relay is running: it may not do all of its work, and a restart would be refused", faults)
				}
				return fmt.Errorf("%d fault(s) must be fixed before a start", faults)
			}
			return nil
		},
	}
}

// writeStatements prints what the lines of writeFindings refer to.
func writeStatements(w io.Writer, words *translate.Catalogue, findings []server.Finding) {
	if all := app.Statements(findings); len(all) > 0 {
		line(w, "\n%s\n%s", words.Text("-- Statements for an administrator, for the lines above that refer to them:"), strings.Join(all, "\n"))
	}
}

func writeFindings(w io.Writer, findings []server.Finding) {
	for _, f := range findings {
		line(w, "%s\t%s\t%s", strings.ToUpper(string(f.Severity)), f.Subject, f.What)
		if f.SQL != "" {
			line(w, "\t\t  fix: run its statement at the end")
			continue
		}
		for _, fix := range strings.Split(f.Fix, "\n") {
			if fix != "" {
				line(w, "\t\t  fix: %s", fix)
			}
		}
	}
}
