//go:build unix

package execagent

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// supported reports whether programs can be agents on this system.
const supported = true

// apart keeps a supervisor out of the bus's process group: what a terminal
// sends there is for the bus, which then ends its programs in order.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Supervise runs a program as the process between it and the bus, and returns
// the exit code of that process. args are the milliseconds from SIGTERM to
// SIGKILL, the most bytes of address space (0: any), and the program's command
// line. Environment, directory, and the standard input, output and error are the
// program's.
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
	grace, _ := strconv.ParseInt(args[0], 10, 64)
	memory, _ := strconv.ParseUint(args[1], 10, 64)
	report := os.NewFile(reportFD, "report")
	lifeline := os.NewFile(lifelineFD, "lifeline")
	syscall.CloseOnExec(reportFD)
	syscall.CloseOnExec(lifelineFD)
	// The kernel ends the program with the thread that started it, not with the
	// process; this goroutine keeps the thread until the program has ended.
	runtime.LockOSThread()
	s := supervisor{grace: time.Duration(grace) * time.Millisecond}
	said := s.run(args[fixed:], memory, lifeline)
	_, _ = io.WriteString(report, said)
	return 0
}

// A supervisor runs one program.
type supervisor struct {
	grace time.Duration
	pid   int // of the program, and of its group
}

func (s *supervisor) run(args []string, memory uint64, lifeline io.Reader) string {
	adoptOrphans()
	path, err := exec.LookPath(args[0])
	if err != nil {
		return "start " + err.Error()
	}
	s.pid, err = syscall.ForkExec(path, args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: session(memory > 0)})
	if err != nil {
		return "start " + err.Error()
	}
	if memory > 0 {
		limitMemory(s.pid, memory)
	}
	for fd := range 3 { // the program's alone: when it closes its output, that is its end
		_ = syscall.Close(fd)
	}
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stopWhenTold(lifeline, ended)
	}()
	status := s.wait()
	close(ended)
	s.sweep()
	return status
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
	_ = syscall.Kill(-s.pid, syscall.SIGTERM) // it may have ended
	patience := time.NewTimer(s.grace)
	defer patience.Stop()
	select {
	case <-patience.C:
		_ = syscall.Kill(-s.pid, syscall.SIGKILL)
	case <-ended:
	}
}

// wait waits for the program, and for orphans that end meanwhile.
func (s *supervisor) wait() string {
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return "lost " + err.Error()
		case pid != s.pid:
		case status.Signaled():
			return "signal " + status.Signal().String()
		default:
			return "exit " + strconv.Itoa(status.ExitStatus())
		}
	}
}

// sweepFor is how long to wait for killed processes to go: one may hang in the
// kernel.
const sweepFor = 10 * time.Second

// sweep kills what the program left behind, until there is nothing.
func (s *supervisor) sweep() {
	_ = syscall.Kill(-s.pid, syscall.SIGKILL) // there may be nobody
	until := time.Now().Add(sweepFor)
	for pause := time.Millisecond; time.Now().Before(until); pause = min(2*pause, 50*time.Millisecond) {
		switch pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
		case err == syscall.EINTR, err == nil && pid > 0:
		case err != nil:
			return // no child is left
		default:
			for _, child := range children() {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			<-time.After(pause)
		}
	}
}
