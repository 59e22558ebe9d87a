package server

import (
	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/a2a"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/identity"
	"github.com/agentbus/agentbus/policy"
	"github.com/agentbus/agentbus/server/config"
)

// A wiring is what one configuration was made into: agents, keys, and a gateway
// before them. It stays as it is, but for agents that a run brought along, and
// whoever began with it ends with it (G30). What outlasts a configuration is the
// Server's.
type wiring struct {
	*Server

	cfg      Config
	identity *identity.Chain
	router   roster
	gateway  *gateway.Gateway
	dialer   *a2a.Dialer   // to what strangers name
	resolver *a2a.Resolver // of the agents of others
	found    *a2a.Directory
	programs map[string]*program // agents that are programs, by name
	breakers map[guarded]*policy.Breaker
	redacts  *eventlog.Redactor // of what drivers and the event wire store

	fingerprint string // of cfg, which replicas share
}

// now returns the wiring in force.
func (s *Server) now() *wiring { return s.current.Load() }

// wire makes a wiring of c, beside the one in force.
func (s *Server) wire(c Config) (*wiring, error) {
	w := &wiring{Server: s, cfg: c, programs: map[string]*program{}, fingerprint: fingerprint(c.Config)}
	if err := w.buildIdentity(); err != nil {
		return nil, err
	}
	w.redacts = eventlog.NewRedactor(w.configuredSecrets()...)
	w.buildBreakers()
	if err := w.buildAgents(); err != nil {
		return nil, err
	}
	if err := w.buildAddresses(); err != nil {
		return nil, err
	}
	build := gateway.New
	if before := s.now(); before != nil {
		build = before.gateway.Reconfigured
		w.router.table.Load().Inherit(before.router.table.Load())
	}
	var err error
	made := w.gatewayConfig()
	if err := w.buildTrust(&made); err != nil {
		return nil, err
	}
	w.gateway, err = build(made)
	return w, err
}

// chainRules are those of chains of agents (C6, C10, C13). In the configuration 0
// means none; to the rooms it means that nothing was said.
func (s *wiring) chainRules() gateway.ChainRules {
	c := s.cfg.Chain
	r := gateway.ChainRules{MaxHops: s.maxHops(), MaxCalls: int64(c.MaxCalls), Absent: gateway.AbsentChain(c.RequireFromAgents), AbsentOf: map[string]gateway.AbsentChain{}, CueFirst: c.Cue == config.CueAlways, Delegates: c.DelegationTools}
	if r.MaxCalls == 0 {
		r.MaxCalls = -1
	}
	for _, k := range s.cfg.Config.Keys {
		if k.RequireChain != "" {
			r.AbsentOf[k.ID] = gateway.AbsentChain(k.RequireChain)
		}
	}
	return r
}

// maxHops is the most hops of a chain of agents, as the rooms want to be told.
func (s *wiring) maxHops() int {
	if s.cfg.Chain.MaxHops == 0 {
		return -1
	}
	return s.cfg.Chain.MaxHops
}

func (s *wiring) gatewayConfig() gateway.Config {
	l, d := s.cfg.Limits, s.cfg.Detach
	if d.Max == 0 {
		d.Max = -1
	}
	if l.BudgetWait == 0 {
		l.BudgetWait = -1
	}
	c := gateway.Config{
		Router: &s.router, Identifier: s.identity, Ledger: s.store, Recorder: s.store, Streams: s.store, CallTokens: &s.tokens,
		MaxDepth: l.MaxDepth, MaxBody: int64(l.MaxBody), BodyTimeout: l.ReadBody, CallTimeout: l.CallTimeout,
		IdleTimeout: l.StreamIdle, InFlight: l.InFlight, ListedRefusals: l.ListedRefusals, DetachMax: d.Max, DetachTimeout: d.Timeout,
		Budgets: s.budgets(), BudgetWait: l.BudgetWait, ReleaseDead: s.releaseDead,
		RefuseForwarded: s.cfg.Forwarding.Mode == config.ForwardingRefuse,
		ExecuteMismatch: s.cfg.Ledger.OnMismatch == config.MismatchExecute,
		Cycles:          gateway.CycleMode(s.cfg.Chain.Cycles),
		Chain:           s.chainRules(),
		Owner:           s.owner, Alive: s.alive, Version: s.cfg.Version, Ready: s.ready, Degraded: s.Degraded, Logger: s.log,
		Observers: []gateway.Observer{s.metrics}, Directory: s.found, Face: s.face,
		A2A: s.a2a(),
	}
	if s.cfg.Recording.Requests {
		c.Recording = gateway.Recording{
			MaxBody:  int(s.cfg.Recording.MaxBody),
			Redactor: func(credentials ...agentbus.Credential) gateway.Redactor { return s.redacting(nil, credentials...) },
		}
	}
	if s.common != nil {
		c.WatchCall, c.Rates = s.common.WatchCall, s.common
	}
	if s.traces != nil {
		c.Observers, c.Tracer = append(c.Observers, s.traces), s.traces
	}
	return c
}
