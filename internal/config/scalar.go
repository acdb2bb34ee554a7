package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// mask stands for a secret wherever one would be shown.
const mask = "******"

// Secret is a text that is shown masked however it is formatted or encoded.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String returns a mask, or nothing when no secret is set.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Bytes is a size, written as a number of bytes or with a unit: KB and MB are powers of 1000, KiB and MiB of 1024.
type Bytes int64

const mebibyte Bytes = 1 << 20

var units = []struct {
	name string
	size Bytes
}{
	{"GiB", 1 << 30}, {"MiB", mebibyte}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
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

var durationType = reflect.TypeFor[time.Duration]()

// setScalar reads one value, from the file or from the environment, into its field. The error completes the sentence
// "the value ...", without the value.
func setScalar(field reflect.Value, text string) error {
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if field.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("is not a duration: write a number with a unit, such as 500ms, 30s or 1h30m")
		}
		field.SetInt(int64(d))
		return nil
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return errors.New("is not a whole number")
		}
		field.SetInt(n)
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return errors.New("is not a whole number from 0 to 4294967295")
		}
		field.SetUint(n)
	default:
		return fmt.Errorf("cannot be set: the type %s has no text form", field.Type())
	}
	return nil
}

// isScalar reports whether a value of this type is written as one text.
func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return false
	}
	return true
}
