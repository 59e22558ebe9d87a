package require

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// FailSyncs makes every fsync and fdatasync of this process fail with EIO from
// now on, as a disk that breaks does: by a filter of the kernel, which cannot
// be taken away again. It is for a process that the test started for it. An
// error says that this machine does not let a process filter itself.
func FailSyncs() error {
	seccomp, known := map[string]uintptr{"amd64": 317, "arm64": 277}[runtime.GOARCH]
	if !known {
		return fmt.Errorf("the number of seccomp is not known on %s", runtime.GOARCH)
	}
	const (
		load, equals, answer = 0x20, 0x15, 0x06 // of the filter's machine
		fail, allow          = 0x00050000 | uint32(syscall.EIO), 0x7fff0000
		setNoNewPrivileges   = 38
		modeFilter, allTasks = 1, 1
	)
	filter := []syscall.SockFilter{
		{Code: load}, // the number of the system call
		{Code: equals, K: syscall.SYS_FSYNC, Jt: 1},
		{Code: equals, K: syscall.SYS_FDATASYNC, Jf: 1},
		{Code: answer, K: fail},
		{Code: answer, K: allow},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]} //nolint:gosec // there are five
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("give up new privileges: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(seccomp, modeFilter, allTasks, uintptr(unsafe.Pointer(&program))); errno != 0 { //nolint:gosec // the kernel reads it during the call
		return fmt.Errorf("set the filter: %w", errno)
	}
	return nil
}
