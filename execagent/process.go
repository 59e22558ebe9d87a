package execagent

import (
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The descriptors of a supervisor beside the three of every process.
const (
	lifelineFD = 3 // read: it ends when the program shall, or when the bus is gone
	reportFD   = 4 // written: how the program ended
)

// A process is a program that runs below its supervisor.
type process struct {
	cmd      *exec.Cmd // of the supervisor
	stdin    *os.File
	stdout   *os.File
	report   *os.File
	stderr   tail
	written  sync.WaitGroup
	unread   bool // once written: nobody can have read any of it
	lifeline *os.File
	once     sync.Once     // closes lifeline
	reported chan struct{} // closed when the supervisor has said how the program ended
	said     string
}

// start starts a program. It sees env, and nothing else of the environment of
// the bus.
func (a *Agent) start(args, env []string, dir string) (p *process, err error) {
	var theirs, ours []*os.File
	defer func() {
		if err != nil {
			theirs = append(theirs, ours...)
		}
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	pipe := func(theyRead bool) *os.File {
		if err != nil {
			return nil
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return nil
		}
		if !theyRead {
			r, w = w, r
		}
		theirs, ours = append(theirs, r), append(ours, w)
		return w
	}
	p = &process{stdin: pipe(true), stdout: pipe(false), lifeline: pipe(true), report: pipe(false)}
	if err != nil {
		return nil, err
	}
	s := a.config.Supervisor
	p.cmd = exec.Command(s[0], append(append(s[1:len(s):len(s)], //nolint:noctx // it is ended by its lifeline
		strconv.FormatInt(a.config.KillAfter.Milliseconds(), 10), strconv.FormatInt(a.config.MaxMemory, 10)), args...)...)
	mark := rand.Text()
	p.cmd.Env, p.cmd.Dir, p.cmd.SysProcAttr = slices.Concat(env, []string{EnvProcess + "=" + mark}), dir, apart()
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], &p.stderr
	p.cmd.ExtraFiles = theirs[2:]
	p.cmd.WaitDelay = 5 * time.Second // for a standard error that somebody else still holds
	if err = p.cmd.Start(); err != nil {
		return nil, err
	}
	p.reported = make(chan struct{})
	go func() { // ends with the supervisor; wait waits for it
		defer close(p.reported)
		report, _ := io.ReadAll(io.LimitReader(p.report, 4096))
		if p.said = string(report); p.said == "" { // the supervisor was killed itself
			killMarked(mark)
		}
	}()
	return p, nil
}

// write writes to the program's input, which may be its end. A program need not
// read it.
func (p *process) write(s string, last bool) {
	p.written.Go(func() { // wait waits for it
		n, err := io.WriteString(p.stdin, s)
		p.unread = err != nil && n == 0
		if last {
			_ = p.stdin.Close()
		}
	})
}

// over reports whether the program has ended.
func (p *process) over() bool {
	select {
	case <-p.reported:
		return true
	default:
		return false
	}
}

// Read reads what the program writes.
func (p *process) Read(b []byte) (int, error) { return p.stdout.Read(b) }

// stop ends the program and all that it started: SIGTERM, then SIGKILL. It does
// not wait.
func (p *process) stop() { p.once.Do(func() { _ = p.lifeline.Close() }) }

// wait waits until nothing of the program is left, and tells how it ended. A
// program whose output is not at its end must have been stopped.
func (p *process) wait() end {
	<-p.reported
	_ = p.cmd.Wait() // the report tells
	p.stop()
	_ = p.stdin.SetWriteDeadline(time.Now()) // nobody reads it any more
	p.written.Wait()
	for _, f := range []*os.File{p.stdin, p.stdout, p.report} {
		_ = f.Close()
	}
	return parseEnd(p.said)
}

// An end is how a program ended, as its supervisor reports it: "exit 0", "exit"
// and another status, "signal" and its name, "memory" and the limit that all its
// processes together went beyond, "start" and why it could not be started, or ""
// when the supervisor was killed itself.
type end struct{ how, what string }

func parseEnd(s string) (e end) {
	e.how, e.what, _ = strings.Cut(strings.TrimSpace(s), " ")
	return e
}

func (e end) ok() bool { return e == end{"exit", "0"} }

// String completes "the program …".
func (e end) String() string {
	switch e.how {
	case "exit":
		return "ended with status " + e.what
	case "signal":
		return "was ended by a signal: " + e.what
	case "memory":
		return "used more than " + e.what + " bytes of memory"
	case "start":
		return "could not be started: " + e.what
	}
	return "ended, and its supervisor did not say how"
}
