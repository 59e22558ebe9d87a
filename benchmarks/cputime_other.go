//go:build !unix

package main

import (
	"errors"
	"time"
)

// cpuTime is not known here; run measures where it is.
func cpuTime() (time.Duration, error) {
	return 0, errors.New("the CPU time of a process is not measured on this system")
}
