package main

import (
	"os"
	"runtime"
)

// superviseArg as the first argument makes this program the supervisor of
// another one. It is no verb: the bus gives it, and nobody types it.
const superviseArg = "supervise-program"

// supervisor is the command of a supervisor: this program, also when its file
// has been replaced since it was started.
func supervisor() []string {
	self := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil
		}
	}
	return []string{self, superviseArg}
}
