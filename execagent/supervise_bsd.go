//go:build unix && !linux

package execagent

import "syscall"

// Without a way to adopt orphans, what leaves the program's process group
// escapes; memory is not limited.

func adoptOrphans() {}

func session(bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func limitMemory(int, uint64) {}

func children() []int { return nil }
