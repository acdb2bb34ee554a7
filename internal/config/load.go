package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Load reads the file, applies the environment (as os.Environ returns it), reads the secrets from their files and checks
// everything; sinks are the permitted ones. The error is a *Faults when the content is wrong. unknown lists environment variables
// with our prefix that match no key: a typing error, or another program's.
func Load(path string, environ []string, sinks Sinks) (cfg *Config, unknown []string, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no configuration file %s: name one with --config", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(path, data, environ, sinks)
}

// Parse is Load for a file that was read already; its name is for messages.
func Parse(name string, data []byte, environ []string, sinks Sinks) (cfg *Config, unknown []string, err error) {
	r := newReport()
	c := Default()
	c.Sink = newSink(sinks)
	if !r.decode(data, &c) {
		return nil, nil, r.err(name)
	}
	unknown = r.overlay(&c, environ)
	r.secrets(reflect.ValueOf(&c).Elem(), "")
	r.validate(&c)
	if err := r.err(name); err != nil {
		return nil, unknown, err
	}
	return &c, unknown, nil
}

var secretType = reflect.TypeFor[setting.Secret]()

// secrets reads each secret that has a key of the same name with _file from that file.
func (r *report) secrets(section reflect.Value, path string) {
	switch section.Kind() {
	case reflect.Pointer:
		if !section.IsNil() {
			r.secrets(section.Elem(), path)
		}
		return
	case reflect.Slice:
		for i := range section.Len() {
			r.secrets(section.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		return
	case reflect.Struct:
	default:
		return
	}
	if sink, is := section.Addr().Interface().(*Sink); is {
		for name, one := range sink.All() {
			r.secrets(reflect.ValueOf(one), join(path, name))
		}
		return
	}
	t := section.Type()
	for i := range t.NumField() {
		key := yamlName(t.Field(i))
		if !isScalar(t.Field(i).Type) {
			r.secrets(section.Field(i), join(path, key))
		} else if j := fieldIndex(t, key+"_file"); j >= 0 && t.Field(i).Type == secretType {
			r.secret(section.Field(i).Addr().Interface().(*setting.Secret), section.Field(j).Addr().Interface().(*setting.File), join(path, key))
		}
	}
}

func (r *report) secret(secret *setting.Secret, file *setting.File, path string) {
	filePath := path + "_file"
	if !file.Set() {
		return
	}
	if secret.Set() {
		// A value from the environment overrides the file's, in either of the two forms.
		byEnv, fileByEnv := r.places[path].source != "", r.places[filePath].source != ""
		switch {
		case byEnv && !fileByEnv:
			*file = setting.File{}
			return
		case byEnv == fileByEnv:
			r.add(filePath, file.Path(), "is set together with %s: set one of the two", path)
			return
		}
	}
	*secret = file.Secret()
	if _, err := secret.Load(); err != nil {
		r.add(filePath, file.Path(), "%v", err)
	}
}

// Print returns the effective configuration as YAML that can be read again. A secret from a file is shown as its file name only,
// and token and secret of the webhook are masked in a comment: as values the masks could be guessed.
func (c *Config) Print() ([]byte, error) {
	out, err := yaml.MarshalWithOptions(c, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("print the configuration: %w", err)
	}
	lines := strings.SplitAfter(string(out), "\n")
	var printed strings.Builder
	for i, line := range lines {
		key, masked := strings.CutSuffix(strings.TrimSpace(line), ": \""+setting.Mask+"\"")
		if masked && i+1 < len(lines) {
			if file, is := strings.CutPrefix(strings.TrimSpace(lines[i+1]), key+"_file: "); is && file != `""` {
				continue
			}
			if key == "token" || key == "secret" {
				line = strings.Replace(line, key+":", "# "+key+":", 1)
			}
		}
		printed.WriteString(line)
	}
	return []byte(printed.String()), nil
}
