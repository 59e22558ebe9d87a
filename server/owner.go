package server

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// An owner names a process: the machine and its boot, the process id, and when
// the process started, so that another process that got the same id later is
// not taken for it. Leases and calls in flight carry it.

// thisProcess returns the owner of this process.
func thisProcess() string {
	return machine() + "/" + strconv.Itoa(os.Getpid()) + "/" + startOf(os.Getpid())
}

// machine names this machine since it was started.
func machine() string {
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(b))
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.ReplaceAll(name, "/", "-")
}

// startOf returns when a process started, in the kernel's ticks since boot; ""
// where the system does not tell.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// Field 22, counted behind the command, which may hold spaces and brackets.
	behind := strings.LastIndex(string(stat), ") ")
	if f := strings.Fields(string(stat)[behind+1:]); behind >= 0 && len(f) > 19 && f[0] != "Z" { // a zombie has ended
		return f[19]
	}
	return ""
}

// namesProcess reports whether owner names a process, as [thisProcess] does.
func namesProcess(owner string) bool { return strings.Count(owner, "/") == 2 }

// processOf names the process that owner is, for people.
func processOf(owner string) string {
	parts := strings.Split(owner, "/")
	if len(parts) != 3 || parts[0] != machine() {
		return "another driver"
	}
	if parts[1] == strconv.Itoa(os.Getpid()) {
		return "this process already"
	}
	return "process " + parts[1]
}

// alive reports whether the process that owner names may still run. It says no
// only when that is certain: nobody, or this machine, and no such process any
// more. A name that a driver in Go was given names no process: its lease decides.
func alive(owner string) bool {
	if !namesProcess(owner) {
		return owner != ""
	}
	parts := strings.Split(owner, "/")
	pid, err := strconv.Atoi(parts[1])
	switch {
	case err != nil || pid <= 0:
		return false
	case parts[0] != machine():
		// Another boot of this machine, or another machine: a store in a file
		// belongs to one machine, so it is a boot that is over.
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return false
	}
	return parts[2] == startOf(pid)
}
