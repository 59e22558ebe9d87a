package execagent

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes every process below this one a child of it once its own
// parent has ended, so that none can slip away.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// session gives the program a session of its own, and ends it with its
// supervisor, should that be killed. A program that is held stops before its
// first instruction.
func session(held bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: held}
}

// limitMemory bounds the address space of a program that is held, and of each
// process that it starts, and lets it go.
func limitMemory(pid int, most uint64) {
	_, _ = syscall.Wait4(pid, nil, 0, nil) // until it is held
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}, nil)
	_ = syscall.PtraceDetach(pid)
}

// children returns the children of this process.
func children() (pids []int) {
	self := strconv.Itoa(os.Getpid())
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat") //nolint:gosec // name is a number
		if err != nil {
			continue // it has ended
		}
		// The parent is the second field behind the command, which may hold spaces and brackets.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == self {
			pids = append(pids, pid)
		}
	}
	return pids
}
