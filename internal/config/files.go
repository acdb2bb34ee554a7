package config

import (
	"fmt"
	"reflect"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// MissingFiles checks the files of secrets and certificates: each one that cannot be read, or is empty, is a fault.
func (c *Config) MissingFiles() (faults []Fault) {
	eachFile(reflect.ValueOf(c).Elem(), "", func(path string, f setting.File) {
		if _, err := f.Load(); err != nil {
			faults = append(faults, Fault{Path: path, Value: f.Path(), Reason: err.Error()})
		}
	}, nil)
	return faults
}

// Troubles says what is wrong at present with secrets and certificates, each in a sentence that begins with the key: a server refuses
// one, or a file was replaced by something that cannot be used.
func (c *Config) Troubles() (list []string) {
	add := func(path string, troubles []string) {
		for _, t := range troubles {
			list = append(list, path+" "+t)
		}
	}
	eachFile(reflect.ValueOf(c).Elem(), "", func(path string, f setting.File) { add(path, f.Troubles()) },
		func(path string, s setting.Secret) { add(path, s.Troubles()) })
	return list
}

// eachFile calls file for each file of secrets and certificates, and text for each secret in the configuration itself,
// including those of the sinks. Either may be nil.
func eachFile(v reflect.Value, path string, file func(string, setting.File), text func(string, setting.Secret)) {
	below := func(v reflect.Value, path string) { eachFile(v, path, file, text) }
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			below(v.Elem(), path)
		}
		return
	case reflect.Slice:
		for i := range v.Len() {
			below(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		return
	case reflect.Struct:
	default:
		return
	}
	switch section := v.Addr().Interface().(type) {
	case *setting.File:
		if section.Set() && file != nil {
			file(path, *section)
		}
	case *setting.Secret:
		if section.Set() && section.Path() == "" && text != nil {
			text(path, *section)
		}
	case *Sink:
		for name, one := range section.All() {
			below(reflect.ValueOf(one), join(path, name))
		}
	default:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				below(v.Field(i), join(path, yamlName(v.Type().Field(i))))
			}
		}
	}
}
