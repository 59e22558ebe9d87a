package sqlite

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock names the time since the machine was started, and tells how long
// ago that is without the time it slept; nil when the system does not say.
func bootClock() (boot string, uptime func() time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", nil
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return "", nil
	}
	return strings.TrimSpace(string(id)), func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it did not fail above
		return time.Duration(now.Nano())
	}
}
