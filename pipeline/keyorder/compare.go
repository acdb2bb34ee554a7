package keyorder

import "strings"

// before compares primary keys in the form of text: numbers by value, anything else byte by byte.
func before(a, b string) bool { return compareKeys(a, b) < 0 }

func compareRow(row *leftRow, id string) int { return compareKeys(row.id.ID, id) }

func compareKeys(a, b string) int {
	negative := strings.HasPrefix(a, "-")
	switch {
	case negative != strings.HasPrefix(b, "-"):
		if negative {
			return -1
		}
		return 1
	case negative:
		return compareKeys(b[1:], a[1:])
	case len(a) != len(b) && digits(a) && digits(b):
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}
