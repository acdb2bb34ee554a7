package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstallReportsWhatTheScriptSays(t *testing.T) {
	t.Setenv("CANAL_OUTBOX_CACHE", t.TempDir())
	err := Install(t.Context(), "oracle")
	if err == nil || !strings.Contains(err.Error(), "unknown server oracle") {
		t.Fatalf("installing an unknown server: %v", err)
	}
}

func TestCacheFollowsTheEnvironment(t *testing.T) {
	t.Setenv("CANAL_OUTBOX_CACHE", "relative")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := Cache(); err != nil || dir != filepath.Join(wd, "relative") {
		t.Errorf("with the variable: %s, %v", dir, err)
	}
	t.Setenv("CANAL_OUTBOX_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/somewhere")
	if dir, err := Cache(); err != nil || dir != "/somewhere/canal-outbox" {
		t.Errorf("with the cache home: %s, %v", dir, err)
	}
}
