//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is a PostgreSQL that a test started. It listens on a socket in its
// own directory, and nowhere on the network.
type Server struct {
	dir, bin string
	settings []string // beside those of every server
	run      *exec.Cmd
	ended    chan struct{}
}

// start makes a cluster in a temporary directory and runs a server on it. What is
// tested survives the death of processes, not of the machine, so nothing need
// reach the disk; and nothing need be vacuumed, in a hundred databases. Tables
// without statistics are taken for large ones: PostgreSQL would compile what
// reads a handful of rows, which took half of the CPU of the tests.
func start(tb testing.TB, bin string) *Server {
	tb.Helper()
	s, err := launch(tb.Context(), bin, "fsync=off", "full_page_writes=off", "autovacuum=off", "shared_buffers=128MB", "jit=off")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Run runs a server for a program that is no test, with settings such as
// shared_buffers=1GB. What it says it has written is on the disk. The caller ends
// it.
func Run(ctx context.Context, settings ...string) (*Server, error) {
	bin := find()
	if bin == "" {
		return nil, errors.New("PostgreSQL is not installed: package postgresql")
	}
	return launch(ctx, bin, settings...)
}

func launch(ctx context.Context, bin string, settings ...string) (*Server, error) {
	return made(ctx, bin, settings, "initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync")
}

// made runs a server on the data that a program makes in a new directory.
func made(ctx context.Context, bin string, settings []string, program string, args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("/tmp", "agentbus-pg-") // a socket's path must be short
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, settings: settings}
	who, err := runner()
	if err == nil && who != nil {
		err = os.Chown(dir, int(who.Uid), int(who.Gid))
	}
	if err != nil {
		return nil, fmt.Errorf("find who runs PostgreSQL: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, program), append(args, "--pgdata="+s.data())...) //nolint:gosec // the machine's own
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: who}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return s, s.boot(ctx)
}

// Standby starts a server that follows s as it is now, and has s wait for it
// with each COMMIT from now on. It can be read, and promoted.
func (s *Server) Standby(tb testing.TB) *Server {
	tb.Helper()
	standby, err := made(tb.Context(), s.bin, s.settings, "pg_basebackup", "--host="+s.dir, "--port=5432", "--username=postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(standby.End)
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if err := do(tb.Context(), s.URL(), statement); err != nil {
			tb.Fatal(err)
		}
	}
	return standby
}

// Both returns the URL of a database of one server that leads to whichever of the
// two takes writes.
func Both(tb testing.TB, database string, other *Server) string {
	tb.Helper()
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set("host", q.Get("host")+","+other.dir)
	q.Set("port", q.Get("port")+",5432")
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = q.Encode()
	return u.String()
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// runner returns as whom the server runs: it refuses to be root.
func runner() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // as who we are
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uerr, gerr)
}

// Start runs the server and waits until it answers. It is for one that was
// stopped.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	if err := s.boot(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) boot(ctx context.Context) error {
	who, err := runner()
	if err != nil {
		return err
	}
	args := []string{"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "max_connections=300", "-c", "log_min_messages=fatal"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin, "postgres"), args...) //nolint:gosec // the machine's own
	cmd.Dir = s.dir
	cmd.SysProcAttr = dieWithUs(who)
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	s.run, s.ended = cmd, make(chan struct{})
	go func() {
		runtime.LockOSThread() // its death is told to the thread that started it
		defer close(s.ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in what the test sees
		}
		_ = log.Close()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.answers(ctx); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("postgres does not answer: %w\n%s", err, text)
	}
	return nil
}

// answers waits until the server takes connections.
func (s *Server) answers(ctx context.Context) (err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1500 {
		var c *pgx.Conn
		if c, err = pgx.Connect(ctx, s.URL()); err == nil {
			return c.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-s.ended:
			return fmt.Errorf("it ended: %w", err)
		}
	}
	return err
}

// Stop ends the server at once, as a crash of it does: what is under way is
// lost, and the next start recovers.
func (s *Server) Stop() {
	if s.run == nil || s.run.Process == nil {
		return
	}
	_ = s.run.Process.Signal(syscall.SIGQUIT) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.run.Process.Kill()
		<-s.ended
	}
}

// End stops the server and removes what it left.
func (s *Server) End() {
	s.Stop()
	_ = os.RemoveAll(s.dir)
}
