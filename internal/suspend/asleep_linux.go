package suspend

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleep is what the clock that counts suspensions is ahead of the one that does not; 0 if one cannot be read.
func asleep() time.Duration {
	var awake, all unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &all) != nil {
		return 0
	}
	return time.Duration(all.Nano() - awake.Nano())
}
