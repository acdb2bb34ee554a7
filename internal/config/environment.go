package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// prefix starts the name of each of our environment variables.
const prefix = "CANAL_OUTBOX_"

// elsewhere are names with our prefix that other parts of the project read, and those that Kubernetes sets for a service named
// canal-outbox.
var elsewhere = []string{"CACHE", "KEEP", "SERVICE_", "PORT"}

// overlay applies environment variables: every scalar and list of scalars of the configuration has one, its path in capitals with
// _ between the parts (source.password: CANAL_OUTBOX_SOURCE_PASSWORD; tables[0].name: CANAL_OUTBOX_TABLES_0_NAME). It returns the
// names with our prefix that match no key.
func (r *report) overlay(cfg *Config, environ []string) (unknown []string) {
	o := overlay{report: r, values: map[string]string{}}
	for _, setting := range environ {
		if name, value, _ := strings.Cut(setting, "="); strings.HasPrefix(name, prefix) {
			o.values[name] = value
		}
	}
	if len(o.values) == 0 {
		return nil
	}
	o.apply(reflect.ValueOf(cfg).Elem(), "", strings.TrimSuffix(prefix, "_"))
	for name := range o.values {
		isElsewhere := func(start string) bool { return strings.HasPrefix(name, prefix+start) }
		if !slices.ContainsFunc(elsewhere, isElsewhere) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

type overlay struct {
	*report
	values map[string]string // removed when used
}

func (o overlay) apply(field reflect.Value, path, name string) {
	if sink, is := field.Addr().Interface().(*Sink); is {
		o.sink(sink, path, name)
		return
	}
	switch {
	case isScalar(field.Type()):
		if text, ok := o.take(path, name); ok {
			o.set(field, path, text)
		}
	case field.Kind() == reflect.Pointer:
		o.pointer(field, path, name)
	case field.Kind() == reflect.Struct:
		for i := range field.NumField() {
			key := yamlName(field.Type().Field(i))
			o.apply(field.Field(i), join(path, key), name+"_"+strings.ToUpper(key))
		}
	case field.Kind() == reflect.Map:
		for _, key := range field.MapKeys() {
			value := reflect.New(field.Type().Elem()).Elem()
			value.Set(field.MapIndex(key))
			o.apply(value, join(path, key.String()), name+"_"+strings.ToUpper(key.String()))
			field.SetMapIndex(key, value)
		}
	case field.Kind() == reflect.Slice && isScalar(field.Type().Elem()):
		o.list(field, path, name)
	case field.Kind() == reflect.Slice:
		for i := range field.Len() {
			o.apply(field.Index(i), fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%s_%d", name, i))
		}
	}
}

// pointer creates an optional section when a variable sets something in it.
func (o overlay) pointer(field reflect.Value, path, name string) {
	if field.IsNil() {
		if !o.names(name) {
			return
		}
		field.Set(reflect.New(field.Type().Elem()))
	}
	o.apply(field.Elem(), path, name)
}

// sink creates the section of a sink when a variable sets something in it.
func (o overlay) sink(s *Sink, path, name string) {
	for _, kind := range s.kinds {
		below := name + "_" + strings.ToUpper(kind.Name)
		if s.sections[kind.Name] != nil || o.names(below) {
			o.apply(reflect.ValueOf(s.section(kind.Name)).Elem(), join(path, kind.Name), below)
		}
	}
}

// names reports whether a variable sets something below a name.
func (o overlay) names(name string) bool {
	for v := range o.values {
		if strings.HasPrefix(v, name+"_") {
			return true
		}
	}
	return false
}

// list parses values separated by commas.
func (o overlay) list(field reflect.Value, path, name string) {
	text, ok := o.take(path, name)
	if !ok {
		return
	}
	parts := strings.Split(text, ",")
	if text == "" {
		parts = nil
	}
	all := reflect.MakeSlice(field.Type(), len(parts), len(parts))
	for i, part := range parts {
		o.set(all.Index(i), path, strings.TrimSpace(part))
	}
	field.Set(all)
}

func (o overlay) take(path, name string) (string, bool) {
	text, ok := o.values[name]
	if ok {
		delete(o.values, name)
		o.places[path] = place{source: name}
	}
	return text, ok
}

func (o overlay) set(field reflect.Value, path, text string) {
	if err := setScalar(field, text); err != nil {
		o.add(path, text, "%v", err)
	}
}
