package config

import (
	"iter"
	"reflect"
	"strings"

	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Section is the part of the configuration that belongs to one sink: a pointer to a struct whose fields have yaml tags, and
// comments for the reference page. Its secrets, TLS sections and environment variables are treated like all others.
type Section interface {
	// Validate reports everything that is wrong with the section.
	Validate(r setting.Report)
}

// SinkKind is one sink that a configuration may name.
type SinkKind struct {
	Name string         // its key under sink
	New  func() Section // its section, with the defaults
}

// Sinks are all that a configuration may name, in the order of the reference page.
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

// Use returns a Sink of one section, for what does not come out of a file.
func Use(name string, section Section) Sink {
	s := newSink(Sinks{{Name: name, New: func() Section { return section }}})
	s.section(name)
	return s
}

// section returns the section of a kind and makes it when there is none; nil when there is no such kind.
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

// All goes over the sections that are set.
func (s *Sink) All() iter.Seq2[string, Section] {
	return func(yield func(string, Section) bool) {
		for _, kind := range s.kinds {
			if section := s.sections[kind.Name]; section != nil && !yield(kind.Name, section) {
				return
			}
		}
	}
}

// Kind names the chosen sink; "" when there is none.
func (s *Sink) Kind() string {
	for name := range s.All() {
		return name
	}
	return ""
}

// Section is that of the chosen sink; nil when there is none.
func (s *Sink) Section() Section { return s.sections[s.Kind()] }

// MarshalYAML shows the sections that are set.
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
