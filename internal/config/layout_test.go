package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// The topic of a table is written as a constant, as a template or as a map.
func TestTopicRules(t *testing.T) {
	for text, want := range map[string]table.TopicRule{
		`orders`:                  {Prefix: "orders"},
		`"order.{event_type}.v1"`: {Prefix: "order.", Column: "event_type", Suffix: ".v1"},
		`{template: orders}`:      {Prefix: "orders"},
		`{column: kind, map: {1: a}, default: b}`: {Column: "kind", Topics: map[string]string{"1": "a"}, Default: "b"},
	} {
		c := parse(t, strings.Replace(minimal, "preset: t_local_message}", "preset: local_message, topic: "+text+"}", 1))
		if got, err := c.Tables[0].Topic.Rule(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// Invalid input for the layout of a table is refused with path, value and reason.
func TestLayoutFaults(t *testing.T) {
	many := "codes: {"
	for i := range maxStates + 1 {
		many += fmt.Sprintf("state_%d: %d, ", i, i+10)
	}
	for text, want := range map[string]string{
		`topic: "order.{a}.{b}"`:                        `tables[0].topic = "order.{a}.{b}"`,
		`topic: "order.{event_type"`:                    "braces",
		`topic: "order.}"`:                              "is no topic",
		`topic: {column: kind}`:                         "needs column and map together",
		`topic: {map: {a: b}}`:                          "needs column and map together",
		`topic: {template: a, default: b}`:              "has a template and a map",
		`topic: {colum: kind}`:                          `did you mean "column"?`,
		`topic: [orders]`:                               "expected one value",
		`topic: orders, columns: {topic: kind}`:         "tables[0].columns.topic",
		`codes: {faild: 9}`:                             "did you mean failed?",
		`codes: {pendin: 9}`:                            "did you mean",
		`codes: {Consumed: 9}`:                          "with an invalid name",
		`codes: {held: 9}`:                              "with an invalid name",
		many + "}":                                      "more than 8 states",
		`message_id_header: "message id"`:               `tables[0].message_id_header = "message id"`,
		`message_id_header: ` + strings.Repeat("m", 65): "tables[0].message_id_header",
	} {
		all := faults(t, strings.Replace(minimal, "preset: t_local_message}", "preset: local_message, "+text+"}", 1))
		if len(all) == 0 || !strings.Contains(fmt.Sprint(all[0].Path, " = ", fmt.Sprintf("%q", all[0].Value), " ", all[0].Reason), want) {
			t.Errorf("%s: %+v", text, all)
		}
	}
}
