//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of this process so far.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
