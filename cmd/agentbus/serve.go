package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/agentbus/agentbus/server"
	"github.com/agentbus/agentbus/server/config"
)

// serveVerb runs the bus.
type serveVerb struct {
	MaxDepth string `name:"max-depth" placeholder:"N" help:"Depth at which a call is refused; else CLI_BRIDGE_MAX_DEPTH, else limits.max_depth, else 4."`
	Quiet    bool   `help:"Log warnings and errors only, no line for each call."`
}

// gcPercent trades memory for CPU (G35): with a heap of a few MiB the collector
// would run many times a second.
const gcPercent = 400

// moreProcs are the threads that may run Go beside one a core. The committer
// waits for the disk a few hundred times a second, and loses its place each
// time: on a busy machine it then stood in the queue behind every request that
// waits for it. With a few more, the kernel gives it a core at once.
const moreProcs = 4

// tune sets the runtime for a server, unless the environment has.
func (a *app) tune() {
	if _, set := a.env("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := a.env("GOMAXPROCS"); !set {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + moreProcs)
	}
}

// Run serves until it is interrupted, then drains.
func (v *serveVerb) Run(ctx context.Context, a *app) error {
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
	s, err := a.open(ctx, c, log)
	if err != nil {
		return err
	}
	defer s.Close() //nolint:errcheck // what was acknowledged is durable already
	return a.serve(ctx, s, c)
}

// serve serves both listeners until ctx ends. The one of operators ends last:
// they see how the bus drains.
func (a *app) serve(ctx context.Context, s *server.Server, c *config.Config) error {
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
	told := fmt.Sprintf("agentbus serves %s on %s://%s (agents: %s)\n", plural(len(c.Agents), "agent"), scheme, public.Addr(), names(c.Agents))
	if operators == nil {
		fmt.Fprint(a.stdout, told) //nolint:errcheck // nobody is left to tell
		return s.Serve(ctx, public)
	}
	told += fmt.Sprintf("admin API on http://%s\n", operators.Addr())
	fmt.Fprint(a.stdout, told) //nolint:errcheck // nobody is left to tell
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

// open builds the bus of a configuration. Nothing listens yet.
func (a *app) open(ctx context.Context, c *config.Config, log *slog.Logger) (*server.Server, error) {
	info, _ := debug.ReadBuildInfo()
	return server.New(ctx, server.Config{Config: c, Version: newBuild(info, linkedVersion).Version, Logger: log})
}

// opened loads the configuration and builds its bus, for verbs that act on the
// store.
func (a *app) opened(ctx context.Context) (*server.Server, *config.Config, error) {
	c, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	s, err := a.open(ctx, c, nil)
	return s, c, err
}
