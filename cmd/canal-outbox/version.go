package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version).
var version = "dev"

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source; "" when it was built without version control
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: cobra.NoArgs, Example: "  canal-outbox version -o json",
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						b.Revision = s.Value
					}
				}
			}
			return c.show(b, func(w io.Writer) {
				line(w, "canal-outbox %s %s %s %s", b.Version, b.Revision, b.Go, b.Platform)
			})
		},
	}
}
