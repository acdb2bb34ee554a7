package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// setScalar parses one value, from the file or from the environment, into its field. The error completes the sentence "the value
// ...", without the value.
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
	case reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("is neither true nor false")
		}
		field.SetBool(text == "true")
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return errors.New("is not a whole number")
		}
		field.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) {
			return errors.New("is not a number")
		}
		field.SetFloat(n)
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
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return false
	}
	return true
}
