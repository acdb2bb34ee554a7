package relay

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
)

// Ledger remembers what was committed. It is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	rows  map[string]Row      // by message id
	order map[string][]string // topic and key -> message ids in commit order
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{rows: map[string]Row{}, order: map[string][]string{}} }

// Committed notes the rows of a transaction whose commit was confirmed.
func (l *Ledger) Committed(rows ...Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.rows[r.MessageID] = r
		if !r.Loose {
			key := r.Topic + " " + r.Key
			l.order[key] = append(l.order[key], r.MessageID)
		}
	}
}

// Rows returns all rows by message id.
func (l *Ledger) Rows() map[string]Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.rows)
}

// Without returns a ledger of the same rows that does not compare the order of some, by message id. Their contents count as before.
func (l *Ledger) Without(order map[string]bool) *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	other := &Ledger{rows: maps.Clone(l.rows), order: map[string][]string{}}
	for id, r := range other.rows {
		r.Loose = r.Loose || order[id]
		other.rows[id] = r
	}
	for key, ids := range l.order {
		other.order[key] = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return order[id] })
	}
	return other
}

// Len is the number of rows.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.rows)
}

// Topics lists the topics of all rows.
func (l *Ledger) Topics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := map[string]bool{}
	for _, r := range l.rows {
		set[r.Topic] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// Account is the difference between what was committed and what the broker stored.
type Account struct {
	Lost     []string       // committed and not published
	Invented []string       // published and not committed
	Changed  []string       // published otherwise than committed, and how
	Disorder []string       // keys whose first copies do not come in commit order
	Copies   map[string]int // message id -> copies beyond the first
}

// Duplicates is the number of copies beyond the first.
func (a Account) Duplicates() (n int) {
	for _, copies := range a.Copies {
		n += copies
	}
	return n
}

// Compare makes the account. Records of one key must be in one partition, so that they have an order.
func (l *Ledger) Compare(records []Record) Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := Account{Copies: map[string]int{}}
	seen := map[string]bool{}
	order := map[string][]string{}
	for _, got := range records {
		want, known := l.rows[got.MessageID]
		if !known {
			a.Invented = append(a.Invented, cmp.Or(got.MessageID, fmt.Sprintf("a record without a message id in partition %d at offset %d", got.Partition, got.Offset)))
			continue
		}
		if how := difference(want, got); how != "" {
			a.Changed = append(a.Changed, got.MessageID+": "+how)
		}
		if seen[got.MessageID] {
			a.Copies[got.MessageID]++
			continue
		}
		seen[got.MessageID] = true
		if !want.Loose {
			key := want.Topic + " " + want.Key
			order[key] = append(order[key], got.MessageID)
		}
	}
	for id := range l.rows {
		if !seen[id] {
			a.Lost = append(a.Lost, id)
		}
	}
	for key, want := range l.order {
		if i := firstDifference(want, order[key]); i >= 0 {
			a.Disorder = append(a.Disorder, fmt.Sprintf("%s: at %d, %s instead of %s", key, i, at(order[key], i), at(want, i)))
		}
	}
	return a
}

func firstDifference(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if at(a, i) != at(b, i) {
			return i
		}
	}
	return -1
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// difference says in what a record differs from its row; "" when it is right.
func difference(want Row, got Record) string {
	sharding := want.ShardingKey
	if sharding == "" {
		sharding = want.Key
	}
	switch {
	case got.Topic != want.Topic:
		return fmt.Sprintf("topic %q, want %q", got.Topic, want.Topic)
	case got.Key != want.Key:
		return fmt.Sprintf("key %q, want %q", got.Key, want.Key)
	case got.Tag != want.Tag:
		return fmt.Sprintf("tag %q, want %q", got.Tag, want.Tag)
	case got.BizType != want.BizType:
		return fmt.Sprintf("biz_type %q, want %q", got.BizType, want.BizType)
	case got.ShardingKey != "" && got.ShardingKey != sharding:
		return fmt.Sprintf("sharding key %q, want %q", got.ShardingKey, sharding)
	case !maps.Equal(got.Headers, want.Headers):
		return fmt.Sprintf("headers %q, want %q", got.Headers, want.Headers)
	case !bytes.Equal(got.Body, want.Body) || (got.Body == nil) != (want.Body == nil):
		return fmt.Sprintf("body of %d bytes %.60q, want %d bytes %.60q", len(got.Body), got.Body, len(want.Body), want.Body)
	}
	return ""
}

// Check fails the test for everything that no fault excuses: loss, invention, other content, other order.
func (a Account) Check(t testing.TB) {
	t.Helper()
	report := func(what string, list []string) {
		if len(list) > 0 {
			slices.Sort(list)
			t.Errorf("%d %s: %q", len(list), what, list[:min(10, len(list))])
		}
	}
	report("committed rows were not published", a.Lost)
	report("messages were published that were not committed", a.Invented)
	report("messages differ from their rows", a.Changed)
	report("keys are out of commit order", a.Disorder)
}
