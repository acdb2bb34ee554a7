package operator

import (
	"strings"
	"time"
)

// ParseTime reads a time: RFC 3339 (2026-01-02T15:04:05Z), or a local time and its zone (2026-01-02 15:04:05 +08:00, or with the
// name of a zone, Asia/Shanghai). One without a zone is refused: whose it is would be a guess.
func ParseTime(text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	local := text
	if day := len(time.DateOnly); len(text) > day && text[day] == 'T' { // not the one in UTC
		local = text[:day] + " " + text[day+1:]
	}
	if at, err := time.Parse("2006-01-02 15:04:05 Z07:00", local); err == nil {
		return at, nil
	}
	if i := strings.LastIndexByte(local, ' '); i > 0 {
		if zone, err := time.LoadLocation(local[i+1:]); err == nil && local[i+1:] != "" && local[i+1:] != "Local" {
			if at, err := time.ParseInLocation(time.DateTime, local[:i], zone); err == nil {
				return at, nil
			}
		}
	}
	return time.Time{}, Usagef("%q is not a time: write 2026-01-02T15:04:05Z, 2026-01-02T15:04:05+08:00, "+
		"or a local time with its zone, such as 2026-01-02 15:04:05 Asia/Shanghai", text)
}
