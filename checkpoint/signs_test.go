package checkpoint

import (
	"os"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// What a process leaves is read as it was left; a file that was cut is an error and no sign of life; after a clean stop there is none.
func TestSigns(t *testing.T) {
	signs := Signs(t.TempDir())
	if _, found, err := signs.Read(); found || err != nil {
		t.Fatalf("an empty directory: %v, %v", found, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for n := range 2 {
		want := outbox.Life{AliveAt: at.Add(time.Duration(n) * time.Second), SettledAt: at}
		if err := signs.Write(want); err != nil {
			t.Fatal(err)
		}
		if got, found, err := signs.Read(); !found || err != nil || got != want {
			t.Errorf("%+v, %v, %v; want %+v", got, found, err, want)
		}
	}
	if err := os.WriteFile(signs.file(), []byte(`{"alive_at": "2026`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := signs.Read(); found || err == nil {
		t.Errorf("a file that was cut: %v, %v", found, err)
	}
	for range 2 {
		if err := signs.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, found, err := signs.Read(); found || err != nil {
		t.Errorf("removed: %v, %v", found, err)
	}
}
