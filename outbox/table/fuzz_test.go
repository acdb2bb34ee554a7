package table

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// FuzzMessage: no row makes Message panic, an error shows no value, and headers are those of the JSON object.
func FuzzMessage(f *testing.F) {
	f.Add("1", "orders", `{"a":"b","c":1}`, "body", "0", "2026-01-02 03:04:05.678", "3", uint32(0))
	f.Add("-1", "", `{"a":"b","a":"c"}`, "", "", "0000-00-00 00:00:00", "x", uint32(0xff))
	f.Add("18446744073709551615", "t", `["no object"]`, "\x00", "9", "2026-13-45 99:99:99.9999999", "-7", uint32(1))
	f.Add("7", "t", `{"a":{"b":[null, "ü"]},"":""} x`, "b", "2", "2026-01-02", "2147483648", uint32(2))
	table := Bound(f, "outbox", nil)
	f.Fuzz(func(t *testing.T, id, topic, headers, body, status, due, number string, shape uint32) {
		texts := map[Column]string{
			ID: id, Topic: topic, Headers: headers, Body: body, StatusCode: status, NextRetryTime: due, CreatedAt: due,
			RetryCount: number, MaxRetry: number, Partition: number, BizType: topic, Key: id, Tag: topic, ShardingKey: id, MessageID: id,
		}
		values := make([]Value, len(table.Reads()))
		for role, text := range texts {
			i := table.at[role]
			if i < 0 {
				continue
			}
			values[i] = Value{Data: []byte(text)}
			// Each column takes two bits of the shape: there, NULL, or not in the row image.
			switch shape >> (2 * uint(i) % 32) & 3 {
			case 1:
				values[i] = Value{Null: true}
			case 2:
				values[i] = Value{Absent: true}
			}
		}
		m, err := table.Message(values)
		if err != nil {
			for _, text := range texts {
				// Shorter texts can be part of a message by chance.
				if len(text) > 24 && strings.Contains(err.Error(), text) {
					t.Fatalf("the error shows a value: %v", err)
				}
			}
			return
		}
		if m.ID == "" || m.Topic == "" || m.MessageID == "" {
			t.Fatalf("a message without identity: %+v", m)
		}
		if v := values[table.at[Headers]]; !v.Null && !v.Absent {
			sameHeaders(t, headers, m.Headers)
		}
	})
}

// sameHeaders compares with another reader of JSON: the same names, and the last value of each.
func sameHeaders(t *testing.T, text string, headers []outbox.Header) {
	t.Helper()
	if strings.TrimSpace(text) == "" {
		return
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(text), &want); err != nil || want == nil {
		t.Fatalf("%q was taken as an object: %v", text, err)
	}
	got := map[string]string{}
	for _, h := range headers {
		got[h.Name] = h.Value
	}
	if len(got) != len(want) {
		t.Fatalf("%q: headers %q", text, got)
	}
	for name, value := range want {
		if s, is := value.(string); is && got[name] != s {
			t.Fatalf("%q: header %q is %q", text, name, got[name])
		}
	}
}
