// Package server is the wiring: it is the only package that knows both sides of
// every interface. It opens the store, builds the agents, the gateway and the
// conversations of a configuration, and serves them.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/admin"
	"github.com/agentbus/agentbus/conversation"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/internal/httpx"
	"github.com/agentbus/agentbus/server/config"
	"github.com/agentbus/agentbus/store/sqlite"
)

// Config configures [New].
type Config struct {
	*config.Config // required; see config.Load

	Version string       // of the product
	Logger  *slog.Logger // nil: nothing is logged
	// Keys are principals beside those of the configuration and the store, for
	// programs that bring their own, such as the demo.
	Keys []identity.StaticKey
}

// A Server is a bus: open from [New] to [Server.Close], and reachable from
// outside while [Server.Serve] runs. It is safe for concurrent use.
type Server struct {
	cfg      Config
	log      *slog.Logger
	owner    string
	store    Store
	identity *identity.Chain
	router   roster
	gateway  *gateway.Gateway
	admin    *admin.API
	agents   *httpx.Direct   // to agents on the network
	issuers  *http.Transport // to those who know tokens
}

// New opens the store and builds the bus. Nothing listens yet; conversations
// can be driven. Close it.
func New(ctx context.Context, c Config) (*Server, error) {
	s := &Server{cfg: c, log: c.Logger, owner: thisProcess()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: c.Store.SQLite, Logger: s.log})
	if err != nil {
		return nil, &agentbus.Error{
			Code: agentbus.CodeStoreUnavailable, Message: "the store " + c.Store.URL + " cannot be opened", Err: err,
			Explain: &agentbus.Explain{Next: "see to what stands there, or name another store: store.url in the configuration, or AGENTBUS_STORE_URL"},
		}
	}
	s.store = store
	s.releaseDead(ctx)
	if err := s.build(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

func (s *Server) build() (err error) {
	if err := s.buildIdentity(); err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	s.agents = &httpx.Direct{
		Dialer: dialer, HeaderTimeout: s.cfg.Limits.ResponseHeader, IdleTimeout: 90 * time.Second,
		Else: &http.Transport{
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ResponseHeaderTimeout: s.cfg.Limits.ResponseHeader,
			DisableCompression:    true,               // answers are stored as they came (G11)
			DialContext:           dialer.DialContext, // no proxy from the environment: credentials go to agents only (P24)
		},
	}
	if err := s.buildAgents(); err != nil {
		return err
	}
	l, d := s.cfg.Limits, s.cfg.Detach
	if d.Max == 0 {
		d.Max = -1
	}
	s.gateway, err = gateway.New(gateway.Config{
		Router: &s.router, Identifier: s.identity, Ledger: s.store, Recorder: s.store,
		MaxDepth: l.MaxDepth, MaxBody: int64(l.MaxBody), BodyTimeout: l.ReadBody, CallTimeout: l.CallTimeout,
		IdleTimeout: l.StreamIdle, InFlight: l.InFlight, DetachMax: d.Max, DetachTimeout: d.Timeout,
		RefuseForwarded: s.cfg.Forwarding.Mode == config.ForwardingRefuse,
		ExecuteMismatch: s.cfg.Ledger.OnMismatch == config.MismatchExecute,
		Owner:           s.owner, Alive: alive, Version: s.cfg.Version, Ready: s.store.Check, Logger: s.log,
	})
	if err != nil {
		return err
	}
	return s.buildAdmin()
}

// Close closes the store. Nothing may use the Server any more.
func (s *Server) Close() error {
	s.agents.CloseIdleConnections()
	s.issuers.CloseIdleConnections()
	return s.store.Close()
}

// Store returns what the bus keeps, to read and to manage keys.
func (s *Server) Store() Store { return s.store }

// Owner names this process in leases and calls in flight.
func (s *Server) Owner() string { return s.owner }

// Runs returns the store's executions, with the leases of dead processes free
// at once.
func (s *Server) Runs() conversation.Runs { return takeover{s.store} }

// Handler returns the public surface, for programs that bring their own server.
func (s *Server) Handler() http.Handler { return s.gateway }

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
// voided. It returns when everything it started has ended. When the store
// breaks it ends with an error: a failed sync is never retried (I2).
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	l, err := s.encrypted(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	srv, l := s.http(l, s.gateway)
	defer s.keep(ctx)()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-s.store.Broken():
		return errors.Join(errBroken, s.drain(ctx, srv, served, min(brokenPatience, s.cfg.DrainTimeout)))
	case <-ctx.Done():
	}
	return s.drain(ctx, srv, served, s.cfg.DrainTimeout)
}

// http returns a server of h, within the limits of the configuration, and the
// listener that it serves in place of l.
func (s *Server) http(l net.Listener, h http.Handler) (*http.Server, net.Listener) {
	srv := &http.Server{
		ReadHeaderTimeout: s.cfg.Limits.ReadHeader, IdleTimeout: s.cfg.Limits.Idle,
		MaxHeaderBytes: int(s.cfg.Limits.MaxHeader), ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.cfg.StrictHTTP {
		strict := httpx.Strict{MaxHeader: int(s.cfg.Limits.MaxHeader)}
		l, h, srv.ConnContext = strict.Listen(l), strict.Handler(h), strict.ConnContext
	}
	srv.Handler = h
	return srv, l
}

// brokenPatience is how long live calls may still say that the store failed.
const brokenPatience = time.Second

func (s *Server) drain(ctx context.Context, srv *http.Server, served <-chan error, atMost time.Duration) error {
	s.log.LogAttrs(ctx, slog.LevelInfo, "draining", slog.Duration("at_most", atMost))
	s.gateway.Drain()
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost)
	defer cancel()
	err := srv.Shutdown(patience)
	if errors.Is(err, context.DeadlineExceeded) {
		s.gateway.Abort()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err = srv.Shutdown(last); err != nil {
			err = errors.Join(err, srv.Close())
		}
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
