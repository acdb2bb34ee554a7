package config

import (
	"iter"
	"reflect"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Section is the part of the configuration of one sink: a pointer to a struct whose fields have yaml tags, and comments for the
// reference page. Its secrets, TLS sections and environment variables are handled like all others.
type Section interface {
	// Validate reports every fault of the section.
	Validate(r setting.Report)
}

// SinkKind is a sink that a configuration may use.
type SinkKind struct {
	Name string         // its key under sink
	New  func() Section // its section, with the defaults
}

// Sinks are the permitted sinks, in the order of the reference page.
type Sinks []SinkKind

// Names lists the keys.
func (s Sinks) Names() (names []string) {
	for _, kind := range s {
		names = append(names, kind.Name)
	}
	return names
}

// Sink is the chosen broker. After Load there is exactly one.
type Sink struct {
	kinds    Sinks
	sections map[string]Section
}

var sinkType = reflect.TypeFor[Sink]()

func newSink(kinds Sinks) Sink { return Sink{kinds: kinds, sections: map[string]Section{}} }

// Use returns a Sink with one section, for a configuration without a file.
func Use(name string, section Section) Sink {
	s := newSink(Sinks{{Name: name, New: func() Section { return section }}})
	s.section(name)
	return s
}

// section returns the section of a kind and creates it if needed; nil when there is no such kind.
func (s *Sink) section(name string) Section {
	if s.sections[name] == nil {
		for _, kind := range s.kinds {
			if kind.Name == name {
				s.sections[name] = kind.New()
			}
		}
	}
	return s.sections[name]
}

// All iterates over the sections that are set.
func (s *Sink) All() iter.Seq2[string, Section] {
	return func(yield func(string, Section) bool) {
		for _, kind := range s.kinds {
			if section := s.sections[kind.Name]; section != nil && !yield(kind.Name, section) {
				return
			}
		}
	}
}

// Kind returns the chosen sink; "" when there is none.
func (s *Sink) Kind() string {
	for name := range s.All() {
		return name
	}
	return ""
}

// Section returns that of the chosen sink; nil when there is none.
func (s *Sink) Section() Section { return s.sections[s.Kind()] }

// MarshalYAML returns the sections that are set.
func (s Sink) MarshalYAML() (any, error) { return s.sections, nil }

func (r *report) sink(s *Sink) {
	var set []string
	for name, section := range s.All() {
		set = append(set, name)
		section.Validate(r.At("sink." + name))
	}
	switch len(set) {
	case 0:
		r.add("sink", "", "no sink is set: write one of %s", strings.Join(s.kinds.Names(), ", "))
	case 1:
	default:
		r.add("sink", strings.Join(set, ", "), "exactly one sink can be set")
	}
}
