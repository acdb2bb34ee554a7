package operator

import (
	"testing"
	"time"
)

// A time is read in each of the forms that the help names; the T of a zone's name is no separator.
func TestParseTime(t *testing.T) {
	want := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, text := range []string{
		"2026-01-02T15:04:05Z", "2026-01-02T23:04:05+08:00", "2026-01-02 23:04:05 +08:00", "2026-01-02 23:04:05 Asia/Shanghai",
		"2026-01-02T23:04:05 Asia/Shanghai", "2026-01-02 15:04:05 UTC", "2026-01-02 10:04:05 EST", "2026-01-02 15:04:05 Etc/UTC",
	} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "2026-01-02", "2026-01-02 15:04:05", "2026-01-02 15:04:05 Local", "2026-01-02 15:04:05 Nowhere"} {
		if _, err := ParseTime(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
