package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a process leaves is read as it was left; a file that was cut is an error and no sign of life; after a clean stop there is none.
func TestLife(t *testing.T) {
	dir := t.TempDir()
	if _, found, err := ReadLife(dir); found || err != nil {
		t.Fatalf("an empty directory: %v, %v", found, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for n := range 2 {
		want := Life{AliveAt: at.Add(time.Duration(n) * time.Second), SettledAt: at}
		if err := want.Write(dir); err != nil {
			t.Fatal(err)
		}
		if got, found, err := ReadLife(dir); !found || err != nil || got != want {
			t.Errorf("%+v, %v, %v; want %+v", got, found, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, lifeFile), []byte(`{"alive_at": "2026`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := ReadLife(dir); found || err == nil {
		t.Errorf("a file that was cut: %v, %v", found, err)
	}
	for range 2 {
		if err := RemoveLife(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, found, err := ReadLife(dir); found || err != nil {
		t.Errorf("removed: %v, %v", found, err)
	}
}
