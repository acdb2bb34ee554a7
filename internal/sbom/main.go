// Command sbom writes the bill of materials of a Go binary as CycloneDX 1.6 (ECMA-424) in JSON: the modules that the compiler recorded in
// it, with the checksums of go.sum. It guarantees the same bytes for the same binary and owns no goroutine.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
)

func main() {
	if err := write(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// bom is the part of a CycloneDX document that a list of modules needs. It has no serial number and no time, which would differ with
// each run.
type bom struct {
	Schema     string      `json:"$schema"`
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	URL        string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// write takes the version of the release and the path of a binary.
func write(out io.Writer, words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want the version and a binary, got %d words", len(words))
	}
	info, err := buildinfo.ReadFile(words[1])
	if err != nil {
		return err
	}
	doc := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata:   metadata{Component: describe("application", info.Main.Path, words[0], "")},
		Components: []component{describe("library", "std", info.GoVersion, "")},
	}
	for _, m := range info.Deps {
		doc.Components = append(doc.Components, library(m))
	}
	slices.SortFunc(doc.Components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// library is a module as it was built: the one that replaces it, if one does.
func library(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return describe("library", m.Path, m.Version, m.Sum)
}

func describe(kind, path, version, sum string) component {
	url := "pkg:golang/" + path + "@" + version
	c := component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
	if sum != "" {
		c.Properties = []property{{Name: "go:sum", Value: sum}}
	}
	return c
}
