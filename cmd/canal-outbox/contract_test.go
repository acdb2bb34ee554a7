package main

import (
	"fmt"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// Commands, their arguments and flags, and the exit codes.
func TestContractCommands(t *testing.T) {
	lines := []string{
		fmt.Sprint("exit code ", exitOK, ": success"),
		fmt.Sprint("exit code ", exitFailure, ": failure, or differences found"),
		fmt.Sprint("exit code ", exitUsage, ": wrong command line"),
		fmt.Sprint("exit code ", exitRefused, ": refused, a person must decide"),
		fmt.Sprint("exit code ", exitProblems, ": status found problems"),
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		lines = append(lines, "command "+c.UseLine())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			lines = append(lines, fmt.Sprintf("flag %s --%s %s", c.CommandPath(), f.Name, f.Value.Type()))
		})
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(newRoot(&cli{out: io.Discard, err: io.Discard}))
	testkit.Contract(t, "commands", lines)
}
