// Command reference writes docs/configuration.md from the configuration's structs: their comments, types and defaults. It
// guarantees that the page names every key and nothing else, and it owns no goroutine. It is run by go generate.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference FILE   (in the directory of package config)")
		os.Exit(2)
	}
	page, err := render(".")
	if err == nil {
		err = os.WriteFile(os.Args[1], page, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

const head = `# Configuration

<!-- Generated from internal/config by "go generate ./internal/config"; edit the comments there. -->

One YAML file, named with ` + "`--config`" + `. Unknown keys are errors. All faults are reported at once:
` + "`canal-outbox config validate`" + ` shows them, ` + "`canal-outbox config print`" + ` shows the effective values with secrets masked.

Every single value and every list of values can be set by an environment variable instead, which wins over the file: the
path in capitals behind ` + "`CANAL_OUTBOX_`" + `, with ` + "`_`" + ` between the parts. ` + "`source.password`" + ` is
` + "`CANAL_OUTBOX_SOURCE_PASSWORD`" + `, ` + "`tables[0].name`" + ` is ` + "`CANAL_OUTBOX_TABLES_0_NAME`" + `; lists are separated by commas. Variables with this
prefix that stand for nothing are reported and ignored.

Durations are written as ` + "`500ms`, `30s`, `1h30m`" + `; sizes as a number of bytes or as ` + "`64MiB`" + `. Passwords, keys and tokens
can be read from a file (` + "`..._file`" + `) and are never printed.
`

// render makes the page from the package in dir.
func render(dir string) ([]byte, error) {
	comments, err := readComments(filepath.Join(dir, "config.go"))
	if err != nil {
		return nil, err
	}
	p := page{comments: comments}
	p.WriteString(head)
	p.section(reflect.ValueOf(config.Documented()), "", 2)
	return []byte(p.String()), nil
}

type page struct {
	strings.Builder
	comments map[string]string // "Type.Field" to the comment
}

// section writes a heading, a table of the plain keys, and then the sections below.
func (p *page) section(v reflect.Value, path string, level int) {
	t := v.Type()
	rows := 0
	for i := range t.NumField() {
		f, value := t.Field(i), v.Field(i)
		if below(value).Kind() == reflect.Struct {
			continue
		}
		if rows++; rows == 1 {
			p.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
		}
		fmt.Fprintf(p, "| `%s` | %s | %s |\n", join(path, key(f)), defaultText(value), p.comment(t, f))
	}
	for i := range t.NumField() {
		f, value := t.Field(i), below(v.Field(i))
		if value.Kind() != reflect.Struct {
			continue
		}
		name := join(path, key(f))
		if v.Field(i).Kind() == reflect.Slice {
			name += "[]"
		}
		fmt.Fprintf(p, "\n%s `%s`\n\n%s\n", strings.Repeat("#", level), name, p.comment(t, f))
		p.section(value, name, min(level+1, 4))
	}
}

// below follows a pointer, and a list of sections to its one element.
func below(v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		return v.Elem()
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && v.Len() > 0:
		return v.Index(0)
	}
	return v
}

// comment is the field's comment as a sentence of its own: "Max is how many tries ..." becomes "How many tries ...".
func (p *page) comment(t reflect.Type, f reflect.StructField) string {
	text := p.comments[t.Name()+"."+f.Name]
	for _, start := range []string{f.Name + " is ", f.Name + " are "} {
		if rest, found := strings.CutPrefix(text, start); found {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return text
}

func key(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// zeroParts is what the text form of a duration ends with and nobody writes: 1h0m0s.
var zeroParts = regexp.MustCompile(`(h)0m0s$|(m)0s$`)

func defaultText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return ""
	}
	text := fmt.Sprint(v.Interface())
	if text == "" {
		return ""
	}
	return "`" + zeroParts.ReplaceAllString(text, "$1$2") + "`"
}

// readComments returns the comment of each field of each struct in the file, as one line.
func readComments(file string) (map[string]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read the structs: %w", err)
	}
	comments := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				text := strings.Join(strings.Fields(f.Doc.Text()), " ")
				comments[spec.Name.Name+"."+f.Names[0].Name] = strings.ReplaceAll(text, "|", "\\|")
			}
		}
		return true
	})
	return comments, nil
}
