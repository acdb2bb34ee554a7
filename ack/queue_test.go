package ack

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// The list behaves like a slice that is cut at its head, whatever is added, taken and put back, and keeps no reference to taken
// rows.
func TestFifo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list fifo
		var model, batch []outbox.Completion
		next := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch n := rapid.IntRange(0, 40).Draw(t, "rows"); rapid.SampledFrom([]string{"add", "take", "put back"}).Draw(t, "step") {
			case "add":
				rows := completions(shop, next, next+n-1, outbox.ActionMarkSent)
				next += n
				list.add(rows)
				model = append(model, rows...)
			case "take":
				batch = list.take(n, batch[:0])
				if want := model[:min(n, len(model))]; !slices.Equal(names(batch), names(want)) {
					t.Fatalf("took %v, want %v", names(batch), names(want))
				}
				model = model[len(batch):]
			case "put back":
				list.putBack(batch)
				model, batch = slices.Concat(batch, model), nil
			}
			if list.len() != len(model) {
				t.Fatalf("%d rows, want %d", list.len(), len(model))
			}
			kept := 0
			for _, c := range list.rows[:cap(list.rows)] {
				if c.ID != "" {
					kept++
				}
			}
			if kept != len(model) {
				t.Fatalf("the array keeps %d rows of %d", kept, len(model))
			}
		}
	})
}
