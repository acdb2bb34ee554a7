// Package systemd reports the state of the process to the service manager by sd_notify(3): that it is ready, that it makes
// progress (the watchdog) and that it stops. Outside systemd, or in a unit that is not of Type=notify, it does nothing.
//
// Guarantee: the watchdog is notified only while the work of the process makes progress. Watch works in the caller's goroutine.
package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// Watch says that the service is ready, and then, twice in each interval that the unit's WatchdogSec asks for, that it is alive while live
// returns nil. It returns when ctx ends. What systemd does not take is logged once: the work does not depend on it.
func Watch(ctx context.Context, live func() error, log *zap.Logger) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog of systemd is off: the environment has no valid WATCHDOG_USEC", zap.Error(err))
	}
	if err := notify(daemon.SdNotifyReady); err != nil {
		log.Warn("systemd does not hear of the start; a unit of Type=notify will be ended", zap.Error(err))
		return
	}
	if interval <= 0 {
		return
	}
	pulse := time.NewTicker(interval / 2)
	defer pulse.Stop()
	failing := false
	for {
		err := live()
		if err == nil {
			err = notify(daemon.SdNotifyWatchdog)
		}
		if err != nil && !failing {
			log.Error("systemd gets no sign that the service is alive and will restart it", zap.Duration("after", interval), zap.Error(err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-pulse.C:
		}
	}
}

// Stopping says that the service was told to stop and finishes what is in flight.
func Stopping() error { return notify(daemon.SdNotifyStopping) }

func notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
