// Package docs holds the pages of this directory, so that a relay can show them where there is no internet. Its tests keep
// guarantees.md honest: every id has one row there, every test that a row names is in the tree, and every test that carries
// an id in its name is named in the row of that id. It needs no server and owns no goroutine.
package docs

import "embed"

// Pages are the pages, by their names in this directory.
//
//go:embed *.md layouts/*.md runbooks/*.md examples/*.md
var Pages embed.FS
