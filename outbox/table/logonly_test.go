package table

import (
	"strings"
	"testing"
	"time"
)

// What needs a status is refused with its reason.
func TestLogOnlyMappingRefuses(t *testing.T) {
	for want, change := range map[string]func(*Mapping){
		"mapped to retry_count, but the table has no status":     func(m *Mapping) { m.Set(RetryCount, "n") },
		"mapped to next_retry_time, but the table has no status": func(m *Mapping) { m.Set(NextRetryTime, "due") },
		"codes are mapped, but no column to status":              func(m *Mapping) { m.SetCode("sent", "1") },
		"grace is set, but the table has no status":              func(m *Mapping) { m.Grace = time.Second },
		"ordering: key is set, but the table has no status":      func(m *Mapping) { m.Ordered = true },
		"no status code is mapped to pending":                    func(m *Mapping) { m.Set(StatusCode, "status") },
		"no column is mapped to body":                            func(m *Mapping) { m.Set(Body, "") },
	} {
		m, err := Preset("debezium-outbox")
		if err != nil {
			t.Fatal(err)
		}
		if faults := m.check(); len(faults) > 0 {
			t.Fatal(faults)
		}
		change(&m)
		if faults := strings.Join(m.check(), "; "); !strings.Contains(faults, want) {
			t.Errorf("%q, want %q", faults, want)
		}
	}
}
