//go:build unix

package execagent

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// supported reports whether programs can be agents on this system.
const supported = true

// apart keeps a supervisor out of the bus's process group: what a terminal
// sends there is for the bus, which then ends its programs in order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// confineArg in the place of the milliseconds makes a supervisor the program
// itself, with its memory limited.
const confineArg = "confine"

// Supervise runs a program as the process between it and the bus, and returns
// the exit code of that process. args are the milliseconds from SIGTERM to
// SIGKILL, the most bytes of memory (0: any), and the program's command
// line; they end the command line of this process. Environment, directory, and
// the standard input, output and error are the program's.
//
// The program has a session, and so a process group, of its own. It is ended
// when the lifeline ends, which the bus holds: the bus closes it, or is gone,
// killed or crashed. Once the program has ended, everything that it started is
// killed; on Linux that includes what has left its group and its session, since
// orphans below a supervisor become the supervisor's (B3).
func Supervise(args []string) int {
	const fixed = 2
	if len(args) <= fixed {
		return 2
	}
	memory, _ := strconv.ParseUint(args[1], 10, 64)
	if args[0] == confineArg {
		return confine(memory, args[fixed:])
	}
	grace, _ := strconv.ParseInt(args[0], 10, 64)
	report := os.NewFile(reportFD, "report")
	lifeline := os.NewFile(lifelineFD, "lifeline")
	keepFiles()
	// The kernel ends the program with the thread that started it, not with the
	// process; this goroutine keeps the thread until the program has ended.
	runtime.LockOSThread()
	s := supervisor{
		self:  os.Args[:max(1, len(os.Args)-len(args))],
		grace: time.Duration(grace) * time.Millisecond, memory: memory,
	}
	said := s.run(args[fixed:], lifeline)
	_, _ = io.WriteString(report, said)
	return 0
}

// A supervisor runs one program.
type supervisor struct {
	self   []string // its own command, as far as it is no program's
	grace  time.Duration
	memory uint64 // 0: any
	pid    int    // of the program, and of its group

	mu    sync.Mutex // nobody is signalled while somebody is reaped, who could be another by then
	over  bool       // the program has been reaped
	cause string     // why it was killed, if it is not how it ended
}

func (s *supervisor) run(args []string, lifeline io.Reader) string {
	adoptOrphans()
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD) // also makes children wait to be reaped, where nobody asked for that
	if err := s.start(args); err != nil {
		return "start " + err.Error()
	}
	for fd := range 3 { // the program's alone: when it closes its output, that is its end
		_ = syscall.Close(fd)
	}
	ended := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { s.stopWhenTold(lifeline, ended) })
	if s.memory > 0 {
		others.Go(func() { s.watchMemory(ended) })
	}
	said := s.reap()
	for said == "" {
		<-died
		said = s.reap()
	}
	close(ended)
	others.Wait()
	s.sweep()
	if s.cause != "" {
		return s.cause
	}
	return said
}

// start starts the program.
func (s *supervisor) start(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if confines && s.memory > 0 {
		args = slices.Concat(s.self, []string{confineArg, strconv.FormatUint(s.memory, 10), path}, args)
		path = selfExe
	}
	s.pid, err = syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: ownSession()})
	return err
}

// confine limits the memory of this process and makes it the program: args are
// where that is, and its command line.
func confine(most uint64, args []string) int {
	const cannotStart = 126 // as shells say it
	env := os.Environ()
	debug.SetGCPercent(-1)
	runtime.GC() // returns when all is swept: a collector that needs memory within the limit would end this process
	err := limitMemory(most)
	if err == nil {
		err = syscall.Exec(args[0], args[1:], env)
	}
	fmt.Fprintln(os.Stderr, "agentbus: the program cannot be started with its memory limited:", err)
	return cannotStart
}

// stopWhenTold ends the program when the lifeline ends, or when the supervisor
// itself is told to end.
func (s *supervisor) stopWhenTold(lifeline io.Reader, ended <-chan struct{}) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	cut := make(chan struct{})
	go func() { // ends with the process at the latest
		defer close(cut)
		_, _ = io.Copy(io.Discard, lifeline)
	}()
	select {
	case <-cut:
	case <-told:
	case <-ended:
		return
	}
	s.signal(syscall.SIGTERM)
	patience := time.NewTimer(s.grace)
	defer patience.Stop()
	select {
	case <-patience.C:
		s.signal(syscall.SIGKILL)
	case <-ended:
	}
}

// watchInterval is how often the memory of all processes of a program is added
// up.
const watchInterval = 250 * time.Millisecond

// watchMemory kills the program when its processes have more memory together
// than one may have.
func (s *supervisor) watchMemory(ended <-chan struct{}) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if memoryBelow() > s.memory {
			s.mu.Lock()
			s.cause = "memory " + strconv.FormatUint(s.memory, 10)
			s.mu.Unlock()
			s.signal(syscall.SIGKILL)
			return
		}
	}
}

// signal signals the program's group, unless the program has been reaped: its
// number could be another's by then.
func (s *supervisor) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		_ = syscall.Kill(-s.pid, sig) // it may have ended
	}
}

// reap reaps what has ended: orphans, and the program, of which it tells how;
// "" while that runs.
func (s *supervisor) reap() (said string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case err == syscall.EINTR:
		case err != nil && said == "":
			return "lost " + err.Error()
		case err != nil || pid == 0:
			return said
		case pid != s.pid:
		case status.Signaled():
			s.over, said = true, "signal "+status.Signal().String()
		default:
			s.over, said = true, "exit "+strconv.Itoa(status.ExitStatus())
		}
	}
}

// sweepFor is how long to wait for killed processes to go: one may hang in the
// kernel.
const sweepFor = 10 * time.Second

// sweep kills what the program left behind, until there is nothing. Nobody else
// reaps: whoever it finds as a child is one until it has been.
func (s *supervisor) sweep() {
	leftGroup(s.pid)
	until := time.Now().Add(sweepFor)
	for pause := time.Millisecond; time.Now().Before(until); pause = min(2*pause, 50*time.Millisecond) {
		switch pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
		case err == syscall.EINTR, err == nil && pid > 0:
		case err != nil:
			return // no child is left
		default:
			killChildren(s.pid)
			<-time.After(pause)
		}
	}
}

// drain reads what a program has written that nobody asked for, and no more than
// most. It does not wait for any.
func drain(f *os.File, most int64) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	var buf [4096]byte
	for n := 1; n > 0 && most > 0; most -= int64(n) {
		n = 0
		if raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buf[:])
			return true
		}) != nil {
			return
		}
	}
}
