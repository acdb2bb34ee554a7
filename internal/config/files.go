package config

import (
	"errors"
	"io/fs"
	"os"
	"reflect"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// MissingFiles checks the files of the TLS sections, which are read at the start and not with the configuration: each one that
// cannot be read is a fault. Load has read the files of secrets.
func (c *Config) MissingFiles() (faults []Fault) {
	eachTLS(reflect.ValueOf(c).Elem(), "", func(section string, t setting.TLS) {
		for _, file := range []struct{ key, path string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
			if err := readable(file.path); err != nil {
				faults = append(faults, Fault{Path: section + "." + file.key, Value: file.path, Reason: "cannot be read: " + err.Error()})
			}
		}
	})
	return faults
}

// eachTLS finds the TLS sections, including those of the sinks.
func eachTLS(v reflect.Value, path string, found func(string, setting.TLS)) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return
	}
	switch section := v.Addr().Interface().(type) {
	case *setting.TLS:
		found(path, *section)
	case *Sink:
		for name, one := range section.All() {
			eachTLS(reflect.ValueOf(one), join(path, name), found)
		}
	default:
		for i := range v.NumField() {
			eachTLS(v.Field(i), join(path, yamlName(v.Type().Field(i))), found)
		}
	}
}

// readable tries to read a file, and returns the error without its path. No path is no error.
func readable(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.ReadFile(path)
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}
