package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// serveVerb runs the bus.
type serveVerb struct {
	MaxDepth string `name:"max-depth" placeholder:"N" help:"Depth at which a call is refused; else CLI_BRIDGE_MAX_DEPTH, else limits.max_depth, else 4."`
	Quiet    bool   `help:"Log warnings and errors only, no line for each call."`
	// Conformance is for those who test the bus.
	Conformance bool `help:"Offer the fixtures and seams of the OpenWOP conformance profile. For testing the bus only."`
}

// How far the heap may grow between two collections, in percent (G35). With a
// live heap of a few MiB the collector would run many times a second at the
// runtime's own 100; docs/operations.md has what was measured. Where GOMEMLIMIT
// bounds the memory it does so whatever stands here, so the bus takes more of it.
const (
	gcPercent        = 400
	gcPercentLimited = 800
)

// moreProcs are the threads that may run Go beside one a core. The committer
// waits for the disk a few hundred times a second, and loses its place each
// time: on a busy machine it then stood in the queue behind every request that
// waits for it. With one more, the kernel gives it a core at once.
const moreProcs = 1

// tune sets the runtime for a server, unless the environment has.
func (a *app) tune() {
	if v, _ := a.env("GOGC"); v == "" {
		percent := gcPercent
		if debug.SetMemoryLimit(-1) != math.MaxInt64 { // GOMEMLIMIT, as the runtime has read it
			percent = gcPercentLimited
		}
		debug.SetGCPercent(percent)
	}
	if v, _ := a.env("GOMAXPROCS"); v == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + moreProcs)
	}
}

// Run serves until it is interrupted, then drains.
func (v *serveVerb) Run(ctx context.Context, a *app) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // from now on, until the log is written: a reload that comes early or late ends no bus (G30)
	defer signal.Stop(hangup)
	var flags []config.Flag
	if v.MaxDepth != "" {
		flags = append(flags, config.Flag{Name: "--max-depth", Key: "limits.max_depth", Value: v.MaxDepth})
	}
	c, err := a.load(flags...)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if v.Quiet {
		level = slog.LevelWarn
	}
	a.tune()
	calm, stop := newCalmLog(ctx, a.stderr, level)
	defer stop()
	log := slog.New(calm)
	s, err := a.open(ctx, server.Config{Config: c, Logger: log, Load: a.again(c, flags), Hangup: hangup, Conformance: v.Conformance})
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	return a.serve(ctx, s, c)
}

// serve serves both listeners until ctx ends. The one of operators ends last:
// they see how the bus drains.
func (a *app) serve(ctx context.Context, s *server.Server, c *config.Config) error {
	left := "agentbus: left before it had drained; what was being executed is settled or freed by the next start"
	a.parting.Store(&left)
	public, err := s.Listen(ctx)
	if err != nil {
		return taken(c.Listen, err, "set listen in the configuration (AGENTBUS_LISTEN)")
	}
	defer public.Close() //nolint:errcheck // Serve closes it; this is for when it is not reached
	operators, err := s.ListenAdmin(ctx)
	if err != nil {
		return taken(c.Admin.Listen, err, `set admin.listen in the configuration (AGENTBUS_ADMIN_LISTEN); "" there turns the admin listener off`)
	}
	scheme := "http"
	if c.TLS != nil {
		scheme = "https"
	}
	at := map[string]any{"agents": slices.AppendSeq([]string{}, maps.Keys(c.Agents)), "url": fmt.Sprintf("%s://%s", scheme, public.Addr())}
	told := fmt.Sprintf("agentbus serves %s on %s://%s (agents: %s)\n", plural(len(c.Agents), "agent"), scheme, public.Addr(), names(c.Agents))
	if operators == nil {
		_ = a.answer(at, told) // nobody is left to tell
		return s.Serve(ctx, public)
	}
	at["admin_url"] = fmt.Sprintf("http://%s", operators.Addr())
	_ = a.answer(at, told+fmt.Sprintf("console and admin API on http://%s\n", operators.Addr())) // nobody is left to tell
	adminCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeAdmin(adminCtx, operators) }()
	err = s.Serve(ctx, public)
	stop()
	return errors.Join(err, <-ended)
}

func taken(address string, err error, or string) error {
	return &failure{exit: exitFailed, what: "cannot listen on " + address, why: cause(err), next: "stop what listens there, or " + or}
}

// again reads the configuration as it was read at first (G30). A file that was
// there, then or since, must be there: while it is being replaced there is a moment
// without one, and all defaults would be a bus without agents. One reads at a time.
func (a *app) again(c *config.Config, flags []config.Flag) func() (*config.Config, []config.Warning, error) {
	from := a.source(flags...)
	took := func(c *config.Config) {
		if from.Before = c; c.Path != "" {
			from.Path = c.Path
		}
	}
	took(c)
	return func() (*config.Config, []config.Warning, error) {
		next, warnings, err := config.Load(from)
		if err == nil {
			took(next)
		}
		return next, warnings, err
	}
}

// open builds a bus. Nothing listens yet.
func (a *app) open(ctx context.Context, c server.Config) (*server.Server, error) {
	c.Version = thisBuild().Version
	c.Supervisor, c.Env = supervisor(), a.env
	return server.New(ctx, c)
}

// opened loads the configuration and builds its bus, for verbs that act on the
// store and serve nobody: they need no secrets.
func (a *app) opened(ctx context.Context) (*server.Server, *config.Config, error) {
	a.storeOnly = true
	c, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	s, err := a.open(ctx, server.Config{Config: c})
	return s, c, err
}
