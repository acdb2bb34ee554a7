package config

import (
	"errors"
	"io/fs"
	"os"
)

// MissingFiles looks at the files of the TLS sections, which are read at the start and not with the configuration: each one
// that cannot be read is a fault. Files of secrets were read by Load.
func (c *Config) MissingFiles() (faults []Fault) {
	sections := map[string]TLS{"source.tls": c.Source.TLS}
	if c.Sink.Kafka != nil {
		sections["sink.kafka.tls"] = c.Sink.Kafka.TLS
	}
	for _, section := range []string{"source.tls", "sink.kafka.tls"} {
		t := sections[section]
		for _, file := range []struct{ key, path string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
			if err := readable(file.path); err != nil {
				faults = append(faults, Fault{Path: section + "." + file.key, Value: file.path, Reason: "cannot be read: " + err.Error()})
			}
		}
	}
	return faults
}

// readable tries to read a file, and tells why that fails without its path. No path is no error.
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
