package setting

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report takes what is wrong with a section: every fault, not the first one. Keys are relative to the section's path.
type Report struct {
	path string
	add  func(path, value, reason string)
}

// NewReport makes a report whose keys are whole paths. A reason completes the sentence "the value ...".
func NewReport(add func(path, value, reason string)) Report { return Report{add: add} }

// At returns the report of a section below this one.
func (r Report) At(key string) Report {
	r.path = r.join(key)
	return r
}

func (r Report) join(key string) string {
	if r.path == "" || key == "" {
		return r.path + key
	}
	return r.path + "." + key
}

// Add notes a fault of a key, or of the section itself when the key is empty. The value is shown: it must be no secret.
func (r Report) Add(key, value, reason string, args ...any) {
	r.add(r.join(key), value, fmt.Sprintf(reason, args...))
}

// Required refuses an empty value.
func (r Report) Required(key, value string) {
	if value == "" {
		r.Add(key, "", "is missing")
	}
}

// OneOf refuses what is not in a list.
func (r Report) OneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		r.Add(key, value, "must be one of %s", strings.Join(allowed, ", "))
	}
}

// Between bounds a duration.
func (r Report) Between(key string, d, low, high time.Duration) {
	if d < low || d > high {
		r.Add(key, short(d), "must be from %s to %s", short(low), short(high))
	}
}

// short is a duration without its trailing zero parts: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Count bounds a number.
func (r Report) Count(key string, n, low, high int) {
	if n < low || n > high {
		r.Add(key, strconv.Itoa(n), "must be from %d to %d", low, high)
	}
}

// Size bounds a number of bytes.
func (r Report) Size(key string, n, low, high Bytes) {
	if n < low || n > high {
		r.Add(key, n.String(), "must be from %v to %v", low, high)
	}
}

// HostPorts wants at least one host:port.
func (r Report) HostPorts(key string, list []string) {
	if len(list) == 0 {
		r.Add(key, "", "is missing: write at least one host:port")
	}
	for i, address := range list {
		r.HostPort(fmt.Sprintf("%s[%d]", key, i), address, false)
	}
}

// HostPort wants host:port, where port 0 may mean any free one.
func (r Report) HostPort(key, address string, anyPort bool) bool {
	if address == "" {
		r.Add(key, "", "is missing: write host:port")
		return false
	}
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || n == 0 && !anyPort || strings.ContainsAny(host, "/@ ") {
		r.Add(key, address, "is not host:port")
		return false
	}
	return true
}

// TLS checks a TLS section for which these modes exist.
func (r Report) TLS(key string, t TLS, modes ...string) {
	r = r.At(key)
	r.OneOf("mode", t.Mode, modes...)
	for _, file := range []struct {
		key  string
		file File
	}{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if t.Mode == "disabled" && file.file.Set() {
			r.Add(file.key, file.file.Path(), "has no effect while %s.mode is disabled", r.path)
		}
	}
	if t.Cert.Set() != t.Key.Set() {
		r.Add("", "", "cert and key belong together: set both or none")
	}
	if t.CA.Set() && (t.Mode == "required" || t.Mode == "preferred") {
		r.Add("ca", t.CA.Path(), "has no effect in the mode %s, which verifies nothing: use verify-ca or verify-identity", t.Mode)
	}
}
