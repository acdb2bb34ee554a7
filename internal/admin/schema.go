package admin

import (
	"encoding"
	"reflect"
	"strings"
	"time"
)

// schemas are the types of bodies and answers by name, made from the Go types that are encoded: a field cannot be in the one and
// not in the other.
type schemas object

var (
	timeType = reflect.TypeFor[time.Time]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// of describes the type of a value, by reference where it has a name.
func (s schemas) of(value any) object { return s.describe(reflect.TypeOf(value)) }

func (s schemas) describe(t reflect.Type) object {
	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t.Implements(textType):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNull(s.describe(t.Elem()))
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": s.describe(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.describe(t.Elem())}
	case reflect.Struct:
		return s.named(t)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	}
	return object{} // anything
}

// orNull lets a value be null. A reference cannot hold that in addition.
func orNull(of object) object {
	if ref, is := of["$ref"]; is {
		return object{"nullable": true, "allOf": []object{{"$ref": ref}}}
	}
	of["nullable"] = true
	return of
}

// named enters a struct under its name and refers to it.
func (s schemas) named(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	ref := object{"$ref": "#/components/schemas/" + name}
	if s[name] != nil {
		return ref
	}
	properties, required := object{}, []string{}
	s[name] = properties // first, for types that hold themselves
	s.fields(t, properties, &required)
	whole := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		whole["required"] = required
	}
	s[name] = whole
	return ref
}

// fields adds those of a struct as package encoding/json sees them; those of an embedded one are its own.
func (s schemas) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		properties[name] = s.describe(f.Type)
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
	}
}
