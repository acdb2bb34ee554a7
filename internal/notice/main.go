// Command notice writes NOTICE: the licence of every module that the service binary holds. It guarantees that a module without
// a licence is an error, not a gap, and it owns no goroutine. It is run by make generate, in the module's root.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	page, err := render(context.Background(), ".")
	if err == nil {
		err = os.WriteFile("NOTICE", page, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "notice:", err)
		os.Exit(1)
	}
}

const head = `canal-outbox
Copyright The canal-outbox authors

Licensed under the Apache License, Version 2.0: see LICENSE.

The binary canal-outbox holds the libraries below, among them files of its dashboard, and the runtime and standard library of Go (BSD licence as for
golang.org/x). Modules with the same text stand together. Where a licence is the Apache License, Version 2.0, its text is
that of LICENSE. This file is written by "make generate".
`

const apache = "Apache License, Version 2.0"

// module is one that is linked into the binary.
type module struct{ Path, Dir string }

// render makes the page for the module in dir.
func render(ctx context.Context, dir string) ([]byte, error) {
	modules, err := linked(ctx, dir)
	if err != nil {
		return nil, err
	}
	licences, notices := map[string][]string{}, map[string][]string{} // text to modules
	for _, m := range modules {
		text, err := read(m.Dir, isLicence)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if text == "" {
			return nil, fmt.Errorf("%s has no licence file", m.Path)
		}
		if isApache(text) {
			text = apache
		}
		borrowed, err := read(filepath.Join(m.Dir, "licenses"), func(string) bool { return true })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		text = strings.TrimSpace(text + "\n\n" + borrowed)
		licences[text] = append(licences[text], m.Path)
		if text, err = read(m.Dir, isNotice); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if text != "" {
			notices[text] = append(notices[text], m.Path)
		}
	}
	if err := assets(dir, licences); err != nil {
		return nil, err
	}
	var page bytes.Buffer
	page.WriteString(head)
	section(&page, "Licences", licences)
	section(&page, "Notices that the Apache License asks to be passed on", notices)
	return page.Bytes(), nil
}

// dashboard is the directory of the dashboard, whose files of other authors each have a licence beside them: uplot.LICENSE is that of
// uplot.js and uplot.css.
const dashboard = "internal/admin/page"

// assets adds the licences of what is embedded and no module.
func assets(dir string, licences map[string][]string) error {
	files, err := filepath.Glob(filepath.Join(dir, dashboard, "*.LICENSE"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".LICENSE")
		clean := strings.TrimSpace(string(text))
		licences[clean] = append(licences[clean], dashboard+"/"+name)
	}
	return nil
}

// linked lists the modules of the service binary as `make build` makes it.
func linked(ctx context.Context, dir string) ([]module, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", "./cmd/canal-outbox")
	list.Dir = dir
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	found := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Module *struct {
				module
				Main bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return slices.SortedFunc(maps.Values(found), func(a, b module) int { return cmp.Compare(a.Path, b.Path) }), nil
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && !p.Module.Main {
			found[p.Module.Path] = p.Module.module
		}
	}
}

var (
	licenceName = regexp.MustCompile(`(?i)^(licen[sc]e|copying)(\.txt|\.md)?$`)
	noticeName  = regexp.MustCompile(`(?i)^notice(\.txt|\.md)?$`)
	spaces      = regexp.MustCompile(`[ \t]+\n`)
)

func isLicence(name string) bool { return licenceName.MatchString(name) }
func isNotice(name string) bool  { return noticeName.MatchString(name) }

// read returns the text of the files of a module's root that are wanted, and "" when there is none.
func read(dir string, wanted func(string) bool) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f fs.DirEntry) bool { return f.IsDir() || !wanted(f.Name()) })
	var texts []string
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return "", err
		}
		clean := strings.ReplaceAll(string(text), "\r\n", "\n")
		texts = append(texts, strings.Trim(spaces.ReplaceAllString(clean+"\n", "\n"), "\n"))
	}
	return strings.Join(texts, "\n\n"), nil
}

// isApache tells the plain text of the licence from one with more licences behind it.
func isApache(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "Apache License") && len(text) < 12_000
}

// section writes each text once, below the modules that it is for.
func section(page *bytes.Buffer, title string, texts map[string][]string) {
	fmt.Fprintf(page, "\n\n%s\n%s\n", title, strings.Repeat("=", len(title)))
	for _, text := range slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return cmp.Compare(texts[a][0], texts[b][0]) }) {
		fmt.Fprintf(page, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(texts[text], "\n"), text)
	}
}
