package relay

import (
	"fmt"
	"testing"
)

// The account must see each way in which a relay can be wrong.
func TestAccountSeesEachFault(t *testing.T) {
	row := func(id, key string) Row {
		return Row{MessageID: id, BizType: "order", Key: key, Topic: "orders", Tag: "new", Headers: map[string]string{"h": "1"}, Body: []byte("body")}
	}
	record := func(id, key string) Record {
		return Record{MessageID: id, BizType: "order", Key: key, Topic: "orders", Tag: "new", Headers: map[string]string{"h": "1"}, Body: []byte("body")}
	}
	changed := func(change func(*Record)) Record {
		r := record("1", "a")
		change(&r)
		return r
	}
	two, three := record("2", "a"), record("3", "b")
	for name, c := range map[string]struct {
		records                                   []Record
		lost, invented, changed, disorder, copies int
	}{
		"right":     {records: []Record{record("1", "a"), two, three}},
		"other key": {records: []Record{three, record("1", "a"), two}},
		"lost":      {records: []Record{two, three}, lost: 1, disorder: 1},
		"invented":  {records: []Record{record("1", "a"), two, three, record("4", "a")}, invented: 1},
		"twice":     {records: []Record{record("1", "a"), two, record("1", "a"), three, three}, copies: 2},
		"order":     {records: []Record{two, record("1", "a"), three}, disorder: 1},
		"topic":     {records: []Record{changed(func(r *Record) { r.Topic = "x" }), two, three}, changed: 1},
		"key":       {records: []Record{changed(func(r *Record) { r.Key = "x" }), two, three}, changed: 1},
		"tag":       {records: []Record{changed(func(r *Record) { r.Tag = "" }), two, three}, changed: 1},
		"biz type":  {records: []Record{changed(func(r *Record) { r.BizType = "" }), two, three}, changed: 1},
		"sharding":  {records: []Record{changed(func(r *Record) { r.ShardingKey = "x" }), two, three}, changed: 1},
		"no header": {records: []Record{changed(func(r *Record) { r.Headers = nil }), two, three}, changed: 1},
		"body":      {records: []Record{changed(func(r *Record) { r.Body = []byte("body ") }), two, three}, changed: 1},
		"no body":   {records: []Record{changed(func(r *Record) { r.Body = nil }), two, three}, changed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			l.Committed(row("1", "a"), row("2", "a"))
			l.Committed(row("3", "b"))
			a := l.Compare(c.records)
			got := []int{len(a.Lost), len(a.Invented), len(a.Changed), len(a.Disorder), a.Duplicates()}
			if want := []int{c.lost, c.invented, c.changed, c.disorder, c.copies}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("lost, invented, changed, disorder, copies: %v, want %v\n%+v", got, want, a)
			}
		})
	}
}

func TestLooseRowsHaveNoOrder(t *testing.T) {
	l := NewLedger()
	l.Committed(Row{MessageID: "1", Loose: true}, Row{MessageID: "2", Loose: true})
	if a := l.Compare([]Record{{MessageID: "2"}, {MessageID: "1"}}); len(a.Disorder)+len(a.Lost) != 0 {
		t.Errorf("%+v", a)
	}
}
