// Package setting holds what sections of the configuration are made of: types of values that have a text form of their own, the
// TLS section, and the report that takes what is wrong. A sink declares its section with them and does not depend on the rest.
//
// Guarantee: a Secret leaves only through Get and Load. A secret or certificate in a file may be replaced while the process runs. The
// package owns no goroutine; its only I/O is reading the files of secrets and certificates.
package setting

import (
	"errors"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// URL is an address that may hold a credential: however it is formatted or encoded, only its scheme and host are shown.
type URL string

// Reveal returns the address itself.
func (u URL) Reveal() string { return string(u) }

// String is the address with a mask in place of all that may be a credential. What cannot be read is masked whole.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	parsed, err := url.Parse(string(u))
	switch {
	case err != nil || parsed.Scheme == "" || parsed.Host == "":
		return Mask
	case parsed.User == nil && strings.Trim(parsed.Path, "/") == "" && parsed.RawQuery == "" && parsed.Fragment == "":
		return string(u)
	}
	return parsed.Scheme + "://" + parsed.Host + "/" + Mask
}

// GoString is String, for %#v.
func (u URL) GoString() string { return u.String() }

// MarshalText is String, for encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Bytes is a size, written as a number of bytes or with a unit: KB and MB are powers of 1000, KiB and MiB of 1024.
type Bytes int64

// MiB is 1024 times 1024 bytes.
const MiB Bytes = 1 << 20

var units = []struct {
	name string
	size Bytes
}{
	{"GiB", 1 << 30}, {"MiB", MiB}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// UnmarshalText reads the text form.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, size := strings.TrimSpace(string(text)), Bytes(1)
	for _, u := range units {
		if rest, found := strings.CutSuffix(number, u.name); found {
			number, size = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(size) {
		return errors.New("is not a size: write a number of bytes, or one with a unit such as 64MiB")
	}
	*b = Bytes(n) * size
	return nil
}

// String is the shortest exact text form.
func (b Bytes) String() string {
	for _, u := range units[:3] {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalText is String, for encoders.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// TLS says whether and how a connection is encrypted.
type TLS struct {
	// Mode is one of `disabled`, `preferred` (encrypted when the server can, not verified; database only), `required`
	// (encrypted, not verified), `verify-ca` (certificate signed by a trusted authority), `verify-identity` (and made out
	// to the host name).
	Mode string `yaml:"mode"`
	// CA is a PEM file with the trusted authorities. Empty: the system's.
	CA File `yaml:"ca"`
	// Cert is a PEM file with the client certificate.
	Cert File `yaml:"cert"`
	// Key is the PEM file with the private key of Cert.
	Key File `yaml:"key"`
}
