//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A lab is the programs that are measured, each a child process.
type lab struct {
	dir     string
	mock    string // address of the upstream
	slow    string // of one whose events are a second apart
	targets []*target
	floor   *target  // measured for its latency alone
	absent  []string // peers that are not installed
	running []*exec.Cmd
}

// A target is something that calls are sent to.
type target struct {
	name    string
	addr    string
	version string // of a peer
	process *exec.Cmd
}

const (
	direct    = "direct" // the upstream itself
	bareproxy = "ReverseProxy"
	agentbus  = "agentbus"

	benchKey = "sk-bench"       // what the load generator sends
	held     = "held"           // an agent whose stream takes a minute
	busKey   = "BENCH_KEY"      // the variable that holds benchKey
	brokeKey = "sk-broke"       // of a payer whose budget is spent; BROKE_KEY holds it
	patience = 20 * time.Second // for a process to start, or to end
)

// build compiles the tools and the bus into dir.
func build(ctx context.Context, o options, dir string) error {
	for _, b := range []struct{ in, what string }{{o.bench, "./..."}, {".", "./cmd/agentbus"}} {
		c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+string(filepath.Separator), b.what)
		c.Dir, c.Env = b.in, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s in %s: %w\n%s", b.what, b.in, err, out)
		}
	}
	return nil
}

// newLab starts everything. Its stop must be called, also after an error.
func newLab(ctx context.Context, o options, dir string) (*lab, error) {
	l := &lab{dir: dir}
	if err := build(ctx, o, dir); err != nil {
		return l, err
	}
	l.mock, l.slow = freeAddr(), freeAddr()
	if _, err := l.start(ctx, l.slow, "mock", "-addr", l.slow, "-gap", "1s"); err != nil {
		return l, err
	}
	mock, err := l.start(ctx, l.mock, "mock", "-addr", l.mock)
	if err != nil {
		return l, err
	}
	l.targets = append(l.targets, &target{name: direct, addr: l.mock, process: mock})
	bare := &target{name: bareproxy, addr: freeAddr()}
	if bare.process, err = l.start(ctx, bare.addr, "bareproxy", "-addr", bare.addr, "-up", "http://"+l.mock); err != nil {
		return l, err
	}
	l.targets = append(l.targets, bare)
	bus, err := l.startBus(ctx, "bus")
	if err != nil {
		return l, err
	}
	l.targets = append(l.targets, bus)
	if l.floor, err = l.startFloor(ctx); err != nil {
		return l, err
	}
	return l, l.startPeers(ctx)
}

// busConfig is that of the bus: all defaults but where things are, and how soon
// it ends.
const busConfig = `listen: %s
admin: {listen: ""}
store: {url: "sqlite:%s"}
drain_timeout: 1s
keys:
  - {id: bench, secret_env: ` + busKey + `}
  - {id: broke, secret_env: BROKE_KEY}
budgets: [{payer: broke, period: total, usd: 0.000001}]
agents:
  gpt-4o-mini:
    kind: openai
    url: http://%s/v1
    aliases: [gpt-4o]
    price: {input: 0.15, output: 0.60}
  ` + held + `: {kind: openai, url: "http://%s/v1", model: gpt-4o}
`

// startBus starts a bus with a new store.
func (l *lab) startBus(ctx context.Context, name string) (*target, error) {
	return l.startBusOn(ctx, name, filepath.Join(l.dir, name+".db"))
}

// startBusOn starts a bus on a store.
func (l *lab) startBusOn(ctx context.Context, name, store string) (*target, error) {
	t := &target{name: agentbus, addr: freeAddr()}
	file := filepath.Join(l.dir, name+".yaml")
	text := fmt.Sprintf(busConfig, t.addr, store, l.mock, l.slow)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var err error
	t.process, err = l.start(ctx, t.addr, "agentbus", "serve", "--config", file)
	return t, err
}

// start runs a program of the lab, or one that is installed, and waits until it
// listens on addr. What it prints goes to a file.
func (l *lab) start(ctx context.Context, addr, program string, args ...string) (*exec.Cmd, error) {
	path := filepath.Join(l.dir, program)
	if filepath.IsAbs(program) {
		path = program
	}
	log, err := os.Create(filepath.Join(l.dir, filepath.Base(program)+"-"+strconv.Itoa(len(l.running))+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	c := exec.CommandContext(ctx, path, args...)
	c.Stdout, c.Stderr, c.Env = log, log, append(os.Environ(), busKey+"="+benchKey, "BROKE_KEY="+brokeKey)
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, patience
	if err := c.Start(); err != nil {
		return nil, err
	}
	l.running = append(l.running, c)
	if err := listens(ctx, addr); err != nil {
		said, _ := os.ReadFile(log.Name())
		return c, fmt.Errorf("%s does not listen on %s: %w\n%s", program, addr, err, said)
	}
	return c, nil
}

// listens waits until somebody listens on addr.
func listens(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// stop ends every process that the lab started, the last one first, and waits
// for each.
func (l *lab) stop() {
	for _, c := range slices.Backward(l.running) {
		_ = c.Process.Signal(syscall.SIGTERM) // one that has ended is waited for all the same
		kill := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
		_ = c.Wait() // how it ended is not what is measured
		kill.Stop()
	}
	l.running = nil
}

// freeAddr returns a loopback address that nobody listens on.
func freeAddr() string {
	c, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return "127.0.0.1:0" // starting there says what is wrong
	}
	defer c.Close() //nolint:errcheck // nobody connected
	return c.Addr().String()
}

// A scenario is what the load generator is told to send.
type scenario struct {
	name string
	args []string
	conc int
}

// figures are what the load generator says.
type figures struct {
	N      int            `json:"n"`
	Errs   int            `json:"errs"`
	Why    map[string]int `json:"why"`
	RPS    float64        `json:"rps"`
	P50    float64        `json:"p50"` // milliseconds
	TTFC50 float64        `json:"ttfc50"`
	CPU    float64        `json:"cpu10k"` // seconds for 10,000 answers
	Memory float64        `json:"rss"`    // MB
}

// load runs the load generator against t.
func (l *lab) load(ctx context.Context, t *target, s scenario, d time.Duration) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	args := append([]string{
		"-addr", t.addr, "-pid", strconv.Itoa(t.process.Process.Pid), "-c", strconv.Itoa(s.conc), "-d", d.String(), "-auth", "Bearer " + benchKey,
	}, s.args...)
	var out, problem bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(l.dir, "load"), args...)
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return f, fmt.Errorf("load %s: %w\n%s", strings.Join(args, " "), err, problem.Bytes())
	}
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return f, fmt.Errorf("load %s said %q: %w", strings.Join(args, " "), out.Bytes(), err)
	}
	if f.N == 0 {
		return f, fmt.Errorf("load %s: no answer was good: %v", strings.Join(args, " "), f.Why)
	}
	return f, nil
}

// memory returns the proportional set size of a process in bytes.
func memory(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("smaps_rollup has no Pss")
}
