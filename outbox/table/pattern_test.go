package table

import (
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct{ pattern, takes, leaves string }{
		{"shop_*.t_local_message_{00..63}", "shop_eu.t_local_message_00 shop_.t_local_message_63", "shop_eu.t_local_message_64 shop_eu.t_local_message_1 shop.t_local_message_00"},
		{"shop_{0..3}.t", "shop_0.t shop_3.t", "shop_4.t shop_00.t"},
		{"{a,b}.t_{8..11}", "a.t_8 b.t_11", "c.t_8 a.t_12 a.t_08"},
		{"a.*", "a.x a.t_local_message", "b.x"},
		{"a.b+*", "a.b+c", "a.bbc"},
	} {
		schema, name, ok := SplitName(c.pattern)
		expression, err := compilePattern(schema, name)
		if !ok || err != nil {
			t.Fatalf("%s: %v", c.pattern, err)
		}
		for _, n := range strings.Fields(c.takes) {
			if !expression.MatchString(n) {
				t.Errorf("%s does not take %s", c.pattern, n)
			}
		}
		for _, n := range strings.Fields(c.leaves) {
			if expression.MatchString(n) {
				t.Errorf("%s takes %s", c.pattern, n)
			}
		}
	}
	for _, bad := range []string{"a.t_{", "a.t_}", "a.t_{}", "a.t_{3..1}", "a.t_{0..99999}", "a.t_{{0..3}}", "a.t_{a..b}", "a.t_{0*}"} {
		if err := CheckPattern(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
