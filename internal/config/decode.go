package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// decoder fills a Config from the nodes of a YAML document. The library's own strict decoding stops at the first unknown key and
// shows the lines around it, including secrets; this one continues and shows only keys.
type decoder struct {
	*report
	anchors map[string]ast.Node
}

// decode reads the document into cfg. It reports whether there was a document; if not, a fault gives the reason and there is
// nothing else to check.
func (r *report) decode(data []byte, cfg *Config) bool {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var syntax yaml.Error
		if !errors.As(err, &syntax) {
			r.add("", "", "not YAML: %v", err)
			return false
		}
		// The message without the source: the lines around it may contain a secret.
		f := Fault{Reason: "not YAML: " + syntax.GetMessage()}
		if t := syntax.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
		}
		r.faults = append(r.faults, f)
		return false
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			r.add("", "", "the file holds more than one YAML document")
			return false
		}
		body = doc.Body
	}
	if body == nil {
		return true
	}
	d := decoder{report: r, anchors: map[string]ast.Node{}}
	ast.Walk(d, body)
	d.value(body, reflect.ValueOf(cfg).Elem(), "")
	return true
}

// Visit collects anchors; it is called by ast.Walk.
func (d decoder) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		d.anchors[a.Name.GetToken().Value] = a.Value
	}
	return d
}

// resolve follows anchors, aliases and tags to the node of the value. An alias that refers to itself is refused like any other
// node of the wrong kind.
func (d decoder) resolve(n ast.Node) ast.Node {
	for range 10 {
		switch node := n.(type) {
		case *ast.AnchorNode:
			n = node.Value
		case *ast.TagNode:
			n = node.Value
		case *ast.AliasNode:
			target, ok := d.anchors[node.Value.GetToken().Value]
			if !ok {
				return n
			}
			n = target
		default:
			return n
		}
	}
	return n
}

var topicType = reflect.TypeFor[Topic]()

// value fills field from n. A null keeps the default.
func (d decoder) value(n ast.Node, field reflect.Value, path string) {
	n = d.resolve(n)
	if n == nil || n.Type() == ast.NullType {
		return
	}
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	switch {
	case field.Type() == topicType && n.Type() != ast.MappingType && n.Type() != ast.MappingValueType: // the short form
		d.scalar(n, field.FieldByName("Template"), path)
	case field.Type() == sinkType:
		d.sink(n, field.Addr().Interface().(*Sink), path)
	case isScalar(field.Type()):
		d.scalar(n, field, path)
	case field.Kind() == reflect.Struct:
		d.section(n, field, path)
	case field.Kind() == reflect.Map:
		d.mapping(n, field, path)
	default:
		d.list(n, field, path)
	}
}

func (d decoder) scalar(n ast.Node, field reflect.Value, path string) {
	text, ok := scalarText(n)
	if !ok {
		d.add(path, "", "expected one value, found %s", kind(n))
		return
	}
	if err := setScalar(field, text); err != nil {
		d.add(path, text, "%v", err)
	}
}

// scalarText returns the text of a scalar as written in the file, so that 007 stays 007 where a text is needed.
func scalarText(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	case ast.ScalarNode:
		return node.GetToken().Value, true
	case *ast.MappingNode:
		return joined(node)
	}
	return "", false
}

// joined undoes an error of the parser: inside braces it parses the list element 10.0.0.7:9092 as a mapping, although YAML
// requires a space after the colon of one.
func joined(n *ast.MappingNode) (string, bool) {
	if len(n.Values) != 1 {
		return "", false
	}
	value, ok := n.Values[0].Value.(ast.ScalarNode)
	if !ok || value.GetToken().Position.Offset != n.Values[0].GetToken().Position.Offset+1 {
		return "", false
	}
	return n.Values[0].Key.GetToken().Value + ":" + value.GetToken().Value, true
}

func kind(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.AliasType:
		return "an alias without an anchor"
	}
	return "a single value"
}

// entries calls f for each key of a mapping, those of merged mappings first.
func (d decoder) entries(n ast.Node, path string, f func(key string, entry *ast.MappingValueNode)) {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		d.add(path, "", "expected a mapping, found %s", kind(n))
		return
	}
	for it := mapping.MapRange(); it.Next(); {
		entry := it.KeyValue()
		if entry.Key.IsMergeKey() {
			if merged, ok := d.resolve(entry.Value).(ast.MapNode); ok && merged != mapping {
				for inner := merged.MapRange(); inner.Next(); {
					f(inner.KeyValue().Key.GetToken().Value, inner.KeyValue())
				}
			}
		}
	}
	for it := mapping.MapRange(); it.Next(); {
		if entry := it.KeyValue(); !entry.Key.IsMergeKey() {
			f(entry.Key.GetToken().Value, entry)
		}
	}
}

func (d decoder) section(n ast.Node, field reflect.Value, path string) {
	d.entries(n, path, func(key string, entry *ast.MappingValueNode) {
		below := d.place(path, key, entry)
		if i := fieldIndex(field.Type(), key); i >= 0 {
			d.value(entry.Value, field.Field(i), below)
			return
		}
		d.unknown(below, key, keys(field.Type()))
	})
}

func (d decoder) sink(n ast.Node, s *Sink, path string) {
	d.entries(n, path, func(key string, entry *ast.MappingValueNode) {
		below := d.place(path, key, entry)
		if section := s.section(key); section != nil {
			d.value(entry.Value, reflect.ValueOf(section).Elem(), below)
			return
		}
		d.unknown(below, key, s.kinds.Names())
	})
}

// place records the position of a key and returns its path.
func (d decoder) place(path, key string, entry *ast.MappingValueNode) string {
	at := entry.Key.GetToken().Position
	below := join(path, key)
	d.places[below] = place{line: at.Line, column: at.Column}
	return below
}

// unknown reports an unknown key.
func (d decoder) unknown(path, key string, known []string) {
	at := d.places[path]
	d.faults = append(d.faults, Fault{
		Path: path, Line: at.line, Column: at.column, Key: key, Reason: "unknown key" + suggestion(key, known),
	})
}

func (d decoder) mapping(n ast.Node, field reflect.Value, path string) {
	all := reflect.MakeMap(field.Type())
	d.entries(n, path, func(key string, entry *ast.MappingValueNode) {
		below := d.place(path, key, entry)
		value := reflect.New(field.Type().Elem()).Elem()
		d.value(entry.Value, value, below)
		all.SetMapIndex(reflect.ValueOf(key), value)
	})
	field.Set(all)
}

func (d decoder) list(n ast.Node, field reflect.Value, path string) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.add(path, "", "expected a list, found %s", kind(n))
		return
	}
	all := reflect.MakeSlice(field.Type(), len(sequence.Values), len(sequence.Values))
	for i, item := range sequence.Values {
		below := fmt.Sprintf("%s[%d]", path, i)
		if t := item.GetToken(); t != nil {
			d.places[below] = place{line: t.Position.Line, column: t.Position.Column}
		}
		d.value(item, all.Index(i), below)
	}
	field.Set(all)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// yamlName is the key of a struct field.
func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func fieldIndex(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if yamlName(t.Field(i)) == key {
			return i
		}
	}
	return -1
}

func keys(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = yamlName(t.Field(i))
	}
	return names
}

// suggestion returns the known word nearest to an unknown one, or all of them when none is near.
func suggestion(word string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(word, k); d < distance {
			best, distance = k, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) == 0:
		return "; there are no keys here"
	}
	return "; known here: " + strings.Join(known, ", ")
}

// editDistance is the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
