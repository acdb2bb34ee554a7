package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/app"
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

// The keys of the configuration, with their kinds and defaults.
func TestContractConfiguration(t *testing.T) {
	cfg := config.Documented(app.Sinks)
	var lines []string
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, value := v.Type().Field(i), v.Field(i)
			inner := below(value)
			name := join(path, key(f))
			if !isSection(inner) {
				lines = append(lines, strings.TrimSpace(name+" "+kindOf(f.Type)+" "+strings.Trim(defaultText(value), "`")))
				continue
			}
			if value.Kind() == reflect.Slice {
				name += "[]"
			}
			if sinks, is := inner.Addr().Interface().(*config.Sink); is {
				for kind, section := range sinks.All() {
					walk(reflect.ValueOf(section).Elem(), join(name, kind))
				}
				continue
			}
			walk(inner, name)
		}
	}
	walk(reflect.ValueOf(&cfg).Elem(), "")
	testkit.Contract(t, "configuration", lines)
}

// kindOf is what a value of a key looks like in the file.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.Bool:
		return "bool"
	}
	switch name := t.String(); {
	case strings.HasSuffix(name, "Duration"):
		return "duration"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Struct:
		return "text"
	case strings.HasSuffix(name, "Bytes"), strings.HasSuffix(name, "Size"):
		return "size"
	}
	return "number"
}
