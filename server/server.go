// Package server is the wiring: it is the only package that knows both sides of
// every interface. It opens the store, builds the agents, the gateway and the
// conversations of a configuration, and serves them. A program that wants a bus
// inside reads a configuration with package config and gives it to [New].
package server

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/http1"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/server/config"
	"github.com/agentbus/agentbus/telemetry"
)

// Config configures [New].
type Config struct {
	*config.Config // required; see config.Load

	Version string       // of the product
	Logger  *slog.Logger // nil: nothing is logged
	// Load reads the configuration again, for [Server.Reload]; nil: it never
	// changes. While the bus serves it is called when the file changes and when
	// Hangup says so.
	Load   func() (*config.Config, []config.Warning, error)
	Hangup <-chan os.Signal
	// Keys are principals beside those of the configuration and the store, for
	// programs that bring their own, such as the demo.
	Keys []identity.StaticKey
	// Supervisor is the command that ends in execagent.Supervise: this program
	// with an argument that says so. Agents of kind exec need it.
	Supervisor []string
	// Conformance offers the fixtures and seams of the conformance profile of the
	// event wire (E70): for tests of a bus, never for one that others use.
	Conformance bool
	// Env looks a variable up of which programs may see the value; nil: that of
	// the process.
	Env func(name string) (string, bool)
}

// A Server is a bus: open from [New] to [Server.Close], and reachable from
// outside while [Server.Serve] runs. It is safe for concurrent use.
type Server struct {
	cfg     Config // what it began with
	log     *slog.Logger
	owner   string
	alive   func(owner string) bool // whether the process that owner names may still run
	store   Store
	common  Common  // with the other buses on the store; nil: there are none
	heard   hearsay // of them
	admin   *admin.API
	wop     *openwop.Host   // runs and events on the wire of OpenWOP
	starts  *starts         // conversations that are begun there
	agents  *http1.Direct   // to agents on the network
	tasks   *http1.Direct   // to those that speak A2A, whose answers may begin when their task is over
	issuers *http.Transport // to those who know tokens
	metrics *telemetry.Metrics
	traces  *telemetry.Traces      // nil: none are sent
	tokens  identity.CallTokens    // of programs
	ending  sync.WaitGroup         // programs that are being ended
	url     atomic.Pointer[string] // where the bus is reached from this machine; nil: nowhere yet

	face      *a2a.Face
	queued    func() int                         // writes that wait for the store
	drained   atomic.Pointer[[]agentbus.Drained] // agents that get no new calls; nil: not read yet
	fleeting  cipher.AEAD                        // of this process alone, for what must not outlive it
	decided   chan struct{}                      // rung when an interrupt was decided here
	driven    drives
	loopback  loopback
	heeding   heeding
	readiness readiness
	current   atomic.Pointer[wiring]
	reloading reloading
}

// New opens the store and builds the bus. Nothing listens yet; conversations
// can be driven. Close it.
func New(ctx context.Context, c Config) (*Server, error) {
	s := &Server{cfg: c, log: c.Logger, owner: thisProcess(), decided: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	var store opened
	s.metrics = telemetry.NewMetrics(telemetry.MetricsConfig{
		Version: c.Version, Current: func() bool { return len(s.Degraded()) == 0 },
		InFlight: func() int { return s.now().gateway.InFlight() }, Detached: func() int { return s.now().gateway.Detached() },
		Queued: func() int { return store.Queued() },
	})
	store, err := s.open(ctx)
	if err != nil {
		return nil, &agentbus.Error{
			Code: agentbus.CodeStoreUnavailable, Message: "the store " + c.Store.URL + " cannot be opened", Err: err,
			Explain: &agentbus.Explain{Next: "see to what stands there, or name another store: store.url in the configuration, or AGENTBUS_STORE_URL"},
		}
	}
	s.store, s.common, s.queued = store.Store, store.Common, store.Queued
	s.releaseDead(ctx)
	s.dial()
	if s.traces, err = telemetry.NewTraces(ctx, telemetry.TracesConfig{OTLP: c.Telemetry.OTLP, Version: c.Version, Logger: s.log}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if err := s.buildFace(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	w, err := s.wire(s.cfg)
	if err == nil {
		err = w.stopAgain(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.current.Store(w)
	s.say(w)
	if err := errors.Join(s.readDrained(ctx), s.buildAdmin(), s.buildHost()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.reloading.read = stamp(c.Path)
	return s, nil
}

// dial prepares the way to agents on the network.
func (s *Server) dial() {
	s.issuers = &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		MaxIdleConnsPerHost: 64, // no proxy from the environment: tokens are shown to their issuer only (P24)
	}
	s.agents, s.tasks = way(s.cfg.Limits.ResponseHeader), way(0) // the gateway bounds the latter by its call_timeout
}

// way returns a way to agents, which may take headerTimeout to begin an answer;
// 0: as long as they like.
func way(headerTimeout time.Duration) *http1.Direct {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	return &http1.Direct{
		Dialer: dialer, HeaderTimeout: headerTimeout, IdleTimeout: 90 * time.Second,
		Else: &http.Transport{
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: headerTimeout,
			DisableCompression:    true,               // answers are stored as they came (G11)
			DialContext:           dialer.DialContext, // no proxy from the environment: credentials go to agents only (P24)
		},
	}
}

// stopAgain stops the runs that were stopped before this bus was opened, or by
// another one since (G14).
func (s *wiring) stopAgain(ctx context.Context) error {
	stopped, err := s.store.StoppedRuns(ctx)
	for _, run := range stopped {
		s.gateway.Stop(run)
	}
	return err
}

// Stop ends every call of a run that this bus is executing, at once, and refuses
// new ones from now on, here and in every bus that opens the store later (G14).
// Attempts are voided; their callers, drivers of this process among them, read
// CodeRunStopped. It returns how many calls it ended, also with an error, which
// is CodeStoreUnavailable: the run is stopped then until this bus is closed. by
// says who stopped it.
func (s *Server) Stop(ctx context.Context, run agentbus.RunID, by string) (cancelled int, err error) {
	if cancelled, err = s.stop(ctx, run, by); err == nil {
		s.outlives(ctx, run)
	}
	return cancelled, err
}

func (s *Server) stop(ctx context.Context, run agentbus.RunID, by string) (cancelled int, err error) {
	cancelled = s.now().gateway.Stop(run)
	s.log.LogAttrs(ctx, slog.LevelInfo, "run stopped", slog.String("run", string(run)), slog.String("by", by), slog.Int("calls", cancelled))
	if err = s.store.StopRun(ctx, run, by, "", time.Now().UTC()); err == nil {
		s.endStopped(ctx, run)
	}
	return cancelled, err
}

// Live returns the calls that agents are being asked right now, oldest first.
func (s *Server) Live() []agentbus.CallRecord { return s.now().gateway.Live() }

// Close ends the programs that wait for work, closes the store, and sends the
// spans that wait. Nothing may use the Server any more.
func (s *Server) Close() error {
	if s.wop != nil {
		s.wop.Close()
	}
	if s.starts != nil {
		s.starts.wait()
	}
	if s.face != nil {
		s.face.Close()
	}
	if w := s.now(); w != nil {
		s.endPrograms(w, nil)
	}
	s.ending.Wait()
	s.agents.CloseIdleConnections()
	s.tasks.CloseIdleConnections()
	s.issuers.CloseIdleConnections()
	err := s.store.Close()
	s.readiness.end()
	if s.traces != nil {
		err = errors.Join(err, s.traces.Close())
	}
	return err
}

// Store returns what the bus keeps, to read and to manage keys.
func (s *Server) Store() Store { return s.store }

// Owner names this process in leases and calls in flight.
func (s *Server) Owner() string { return s.owner }

// Runs returns the store's executions, with the leases of dead processes free
// at once.
func (s *Server) Runs() conversation.Runs { return takeover{s.store, s.alive} }

// Handler returns the public surface, for programs that bring their own server.
// Each request meets the configuration in force when it comes.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if openwop.Serves(r.URL.Path) {
			if !httpx.Arrived(r) { // the gateway bounds what is its own (G3)
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.now().cfg.Limits.ReadBody)) // an in-memory caller has none
			}
			s.wop.ServeHTTP(w, r)
			return
		}
		s.now().gateway.ServeHTTP(w, r)
	})
}

// Metrics returns the figures of the bus for Prometheus (G33). They stand on no
// public route: mount them where operators listen.
func (s *Server) Metrics() http.Handler { return s.metrics.Handler() }

// Listen listens on the configured address.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	return l, nil
}

// Serve serves the public surface on l, over TLS when that is configured, until ctx ends, then drains (G31): no
// new calls, live ones go on for up to drain_timeout, what is left is cut and
// voided. While it serves, workers drive the runs that nobody drives (R19); they
// hand back what they drive as it drains. It returns when everything it started has ended. When the store
// breaks it ends with an error: a failed sync is never retried (I2).
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.reachedAt(l.Addr())
	l, err := s.encrypted(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	srv := s.http(s.Handler(), 0)
	defer s.keep(ctx)()
	defer s.heed(ctx)()
	defer s.telling(ctx)()
	defer s.watching(ctx)()
	defer s.recovering(ctx)()
	work := s.work(ctx)
	defer work.wait()
	defer s.starts.wait()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-s.store.Broken():
		patience := min(brokenPatience, s.now().cfg.DrainTimeout)
		work.leave(patience)
		s.starts.leave(patience)
		return errors.Join(errBroken, s.drain(ctx, srv, served, patience))
	case <-ctx.Done():
	}
	work.leave(s.now().cfg.DrainTimeout)
	s.starts.leave(s.now().cfg.DrainTimeout)
	return s.drain(ctx, srv, served, s.now().cfg.DrainTimeout)
}

// A listening serves a handler on listeners: http1.Server, or http.Server where
// the operator wants requests read as tolerantly as that reads them.
type listening interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// http returns a server of h, within the limits of the configuration (G36). A
// body comes within readBody; 0: h sees to that.
func (s *Server) http(h http.Handler, readBody time.Duration) listening {
	limits := s.cfg.Limits
	if s.cfg.StrictHTTP {
		return &http1.Server{Handler: h, MaxHeader: int(limits.MaxHeader), ReadHeader: limits.ReadHeader, ReadBody: readBody, Idle: limits.Idle, Logger: s.log}
	}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: limits.ReadHeader, ReadTimeout: readBody, IdleTimeout: limits.Idle,
		MaxHeaderBytes: int(limits.MaxHeader), ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// brokenPatience is how long live calls may still say that the store failed.
const brokenPatience = time.Second

func (s *Server) drain(ctx context.Context, srv listening, served <-chan error, atMost time.Duration) error {
	s.log.LogAttrs(ctx, slog.LevelInfo, "draining", slog.Duration("at_most", atMost))
	s.now().gateway.Drain()
	s.wop.Close() // those who follow a run come back to whoever serves then
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost)
	defer cancel()
	err := srv.Shutdown(patience)
	s.face.Drain(patience) // tasks outlive their callers
	s.face.Close()         // what is left of them is the next process's
	if errors.Is(err, context.DeadlineExceeded) {
		s.now().gateway.Abort()
		err = hangUp(context.WithoutCancel(ctx), srv)
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

const (
	lastWords  = 2 * time.Second // for callers to read that their calls were cut
	lastWrites = 5 * time.Second // for what served them to end
)

// hangUp lets callers read what became of their calls, and then leaves those who
// have not read it, or are still saying what they want: what served them ends
// before the store is closed.
func hangUp(ctx context.Context, srv listening) error {
	last, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if err := srv.Shutdown(last); !errors.Is(err, context.DeadlineExceeded) {
		return err //nolint:wrapcheck // it names the listener
	}
	err := srv.Close()
	last, cancel = context.WithTimeout(ctx, lastWrites)
	defer cancel()
	return errors.Join(err, srv.Shutdown(last))
}
