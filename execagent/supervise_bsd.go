//go:build unix && !linux

package execagent

import (
	"errors"
	"syscall"
)

// Without a way to adopt orphans, what leaves the program's process group
// escapes, and so does what the killer of a supervisor leaves; memory is not
// limited.

const (
	confines = false
	selfExe  = ""
)

func adoptOrphans() {}

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// keepFiles keeps the descriptors of the supervisor from the program.
func keepFiles() {
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(lifelineFD)
}

func limitMemory(uint64) error { return errors.ErrUnsupported }

func memoryBelow() uint64 { return 0 }

// leftGroup kills what is left of the program's group.
func leftGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) } // there may be nobody

func killChildren(int) {}

func killMarked(string) {}
