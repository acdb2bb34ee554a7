package main

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker (-X main.version) where a release is built; without them the commit is the one that go build has recorded.
var (
	version  = "dev"
	revision = "" // the commit
	date     = "" // of the commit, RFC 3339
)

// build describes this binary.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // the commit; "" when it was built without version control
	Date     string `json:"date"`     // of the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: cobra.NoArgs, Example: "  canal-outbox version -o json",
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: version, Revision: revision, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					switch s.Key {
					case "vcs.revision":
						b.Revision = cmp.Or(b.Revision, s.Value)
					case "vcs.time":
						b.Date = cmp.Or(b.Date, s.Value)
					}
				}
			}
			return c.show(b, func(w io.Writer) {
				line(w, "canal-outbox %s %s %s %s %s", b.Version, cmp.Or(b.Revision, "no-revision"), cmp.Or(b.Date, "no-date"), b.Go, b.Platform)
			})
		},
	}
}
