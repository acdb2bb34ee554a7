package testkit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The server's calls for the time go through a library that adds an offset, which it reads from a file again each second.
// Its monotonic clock stays what it is, as when an administrator sets the time.
const (
	clockLibrary = "libfaketime.so.1"
	clockFile    = "clock"
)

// ownClock puts the library and the file next to the server's data and returns the environment that makes it use them.
func (d *Database) ownClock(ctx context.Context) ([]string, error) {
	if err := install(ctx, "clock"); err != nil {
		return nil, err
	}
	found, err := filepath.Glob("/usr/lib/*/faketime/" + clockLibrary)
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("a clock for %s: no %s: %v", d.Flavor, clockLibrary, err)
	}
	library, err := os.ReadFile(found[0])
	if err != nil {
		return nil, fmt.Errorf("a clock for %s: %w", d.Flavor, err)
	}
	inside := d.installed.inside(d.dir.path) // a server with a root file system of its own sees nothing else
	if err := os.WriteFile(filepath.Join(d.dir.path, clockLibrary), library, 0o755); err != nil {
		return nil, fmt.Errorf("a clock for %s: %w", d.Flavor, err)
	}
	return []string{
		"LD_PRELOAD=" + filepath.Join(inside, clockLibrary), "FAKETIME_TIMESTAMP_FILE=" + filepath.Join(inside, clockFile),
		"FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
		"FAKETIME_FORCE_MONOTONIC_FIX=0", // with it no timed wait of MySQL waits: idle, it took all of two cores
	}, d.writeClock(0)
}

func (d *Database) writeClock(offset time.Duration) error {
	text := fmt.Sprintf("%+.3f\n", offset.Seconds())
	if err := os.WriteFile(filepath.Join(d.dir.path, clockFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("set the clock of %s: %w", d.Flavor, err)
	}
	return nil
}

// SetClock lets the server's clock be that of this machine plus an offset, and returns when it is. The server was started
// with a clock of its own.
func (d *Database) SetClock(ctx context.Context, offset time.Duration) error {
	if err := d.writeClock(offset); err != nil {
		return err
	}
	for end := time.Now().Add(startDeadline); ; time.Sleep(poll) {
		var micros int64
		if err := d.root.QueryRowContext(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))").Scan(&micros); err != nil {
			return fmt.Errorf("look at the clock of %s: %w", d.Flavor, err)
		}
		ahead := time.Until(time.UnixMicro(micros))
		if (ahead - offset).Abs() < time.Second {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the clock of %s is %v ahead and not %v", d.Flavor, ahead, offset)
		}
	}
}
