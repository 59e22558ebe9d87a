//go:build !unix

package execagent

import (
	"os"
	"syscall"
)

// supported reports whether programs can be agents on this system.
const supported = false

func apart() *syscall.SysProcAttr { return nil }

// Supervise does nothing on this system: [New] refuses every program.
func Supervise([]string) int { return 1 }

func killMarked(string) {}

func drain(*os.File, int64) {}
