package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TopicRule makes the topic of a column's value: Prefix, the value and Suffix, or what Topics has for the value. Without a
// Column it is Prefix for every row.
type TopicRule struct {
	Column         string
	Prefix, Suffix string
	Topics         map[string]string // by value; nil: the value itself
	Default        string            // for values that Topics does not have; "" for none
}

// ParseTopic reads a constant, or a template with the name of one column in braces, such as "order.{event_type}".
func ParseTopic(template string) (TopicRule, error) {
	prefix, rest, found := strings.Cut(template, "{")
	if !found {
		if template == "" || strings.Contains(template, "}") {
			return TopicRule{}, fmt.Errorf("%q is no topic: write a constant, or a template such as order.{event_type}", template)
		}
		return TopicRule{Prefix: template}, nil
	}
	column, suffix, closed := strings.Cut(rest, "}")
	if !closed || column == "" || strings.ContainsAny(prefix+suffix, "{}") {
		return TopicRule{}, fmt.Errorf("%q is no template: write the name of one column in braces, such as order.{event_type}", template)
	}
	return TopicRule{Column: column, Prefix: prefix, Suffix: suffix}, nil
}

// Samples are topics as the rule makes them: each that it names, or the one for a plain word.
func (r *TopicRule) Samples() []string {
	if r.Topics == nil && r.Column == "" {
		return []string{r.Prefix}
	}
	if r.Topics == nil {
		return []string{r.Prefix + "name" + r.Suffix}
	}
	all := slices.Sorted(maps.Values(r.Topics))
	if r.Default != "" {
		all = append(all, r.Default)
	}
	return all
}

// Names are the topics that the rule names as a whole: a constant, or those of its map.
func (r *TopicRule) Names() []string {
	if r.Topics == nil && r.Column != "" {
		return nil
	}
	return r.Samples()
}

var errNoTopic = errors.New("tables[].topic has no topic for its value, and no default")

// apply is the topic of a value.
func (r *TopicRule) apply(value []byte) (string, error) {
	if r.Topics == nil {
		return r.Prefix + string(value) + r.Suffix, nil
	}
	if topic, ok := r.Topics[string(value)]; ok {
		return topic, nil
	}
	if r.Default == "" {
		return "", errNoTopic
	}
	return r.Default, nil
}

// Topic is the topic of a row whose Topic column has this value; any value where no column plays that role. "" when there is
// none.
func (t *Table) Topic(value []byte) string {
	switch rule := t.mapping.Topic; {
	case rule == nil:
		return string(value)
	case rule.Column != "" && len(value) == 0:
		return ""
	default:
		topic, err := rule.apply(value)
		if err != nil {
			return ""
		}
		return topic
	}
}
