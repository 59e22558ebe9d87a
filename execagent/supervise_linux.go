package execagent

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The memory of a program can be limited, by this program as selfExe, which it
// is also when its file has been replaced.
const (
	confines = true
	selfExe  = "/proc/self/exe"
)

// adoptOrphans makes every process below this one a child of it once its own
// parent has ended, so that none can slip away.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// ownSession gives the program a session of its own, and ends it with its
// supervisor, should that be killed.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// keepFiles keeps every descriptor but the first three from the program: those
// of the supervisor, and whatever the bus itself was started with.
func keepFiles() {
	const last = 1<<31 - 1
	if unix.CloseRange(lifelineFD, last, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, _ := readNames("/proc/self/fd") // before Linux 5.11
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd >= lifelineFD {
			syscall.CloseOnExec(fd)
		}
	}
}

// limitMemory bounds the memory that this process, the program that it becomes,
// and each process that that starts can have for themselves: data, heap, and
// what is mapped to be written. What is only reserved does not count, as it would
// for the address space: runtimes reserve far more than they use.
func limitMemory(most uint64) error {
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most})
}

// A proc is a process as /proc tells of it.
type proc struct{ pid, parent, group int }

// readNames returns what a directory holds.
func readNames(path string) ([]string, error) {
	dir, err := os.Open(path) //nolint:gosec // below /proc
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	return dir.Readdirnames(-1)
}

// procs returns all processes that can be seen.
func procs() (all []proc) {
	names, _ := readNames("/proc")
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat") //nolint:gosec // name is a number
		if err != nil {
			continue // it has ended
		}
		// Behind the command, which may hold spaces and brackets, stand the state, the parent and the group.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 {
			continue
		}
		p := proc{pid: pid}
		p.parent, _ = strconv.Atoi(fields[1])
		p.group, _ = strconv.Atoi(fields[2])
		all = append(all, p)
	}
	return all
}

// leftGroup does nothing: killChildren finds the group as well.
func leftGroup(int) {}

// killChildren kills the children of this process, and a group as long as one of
// them is in it: as long as that is so, the group is still the one it was.
func killChildren(group int) {
	self := os.Getpid()
	for _, p := range procs() {
		if p.parent != self {
			continue
		}
		if p.group == group {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
}

// memoryBelow adds up the memory that the processes below this one have for
// themselves, in bytes.
func memoryBelow() (sum uint64) {
	below := map[int][]int{}
	for _, p := range procs() {
		below[p.parent] = append(below[p.parent], p.pid)
	}
	for next := below[os.Getpid()]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], below[pid]...)
		delete(below, pid) // the table was read while it changed
		sum += memoryOf(pid)
	}
	return sum
}

// memoryOf returns what a process has in memory for itself, in bytes.
func memoryOf(pid int) uint64 {
	statm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(statm))
	if err != nil || len(fields) < 3 {
		return 0 // it has ended
	}
	resident, _ := strconv.ParseUint(fields[1], 10, 64)
	shared, _ := strconv.ParseUint(fields[2], 10, 64)
	return (resident - min(resident, shared)) * uint64(os.Getpagesize()) //nolint:gosec // it is positive
}

// killMarked kills every process that carries a mark in its environment, until
// there is none: what a killed supervisor has left.
func killMarked(mark string) {
	variable := []byte(EnvProcess + "=" + mark)
	until := time.Now().Add(sweepFor)
	for pause := time.Millisecond; time.Now().Before(until); pause = min(2*pause, 50*time.Millisecond) {
		found := false
		names, _ := readNames("/proc")
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && killIfMarked(pid, variable) {
				found = true
			}
		}
		if !found {
			return
		}
		<-time.After(pause)
	}
}

// killIfMarked holds on to the process before it looks at it, so that nobody
// else can have its number when it is killed.
func killIfMarked(pid int, variable []byte) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // another user's
	}
	for line := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(line, variable) {
			return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
		}
	}
	return false
}
