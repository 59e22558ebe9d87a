package server

import (
	"net/http"
	"net/netip"

	"github.com/agentbus/agentbus/gateway"
	"github.com/agentbus/agentbus/server/config"
)

// a2a is the A2A surface of the gateway.
func (s *wiring) a2a() gateway.A2AConfig {
	c := gateway.A2AConfig{
		DefaultAgent: s.cfg.A2A.DefaultAgent, PublicURL: s.cfg.PublicURL, Tasks: s.store, Webhook: s.dialer.Webhook,
		Compat: s.cfg.A2A.Compat == config.Compat03,
	}
	for _, text := range s.cfg.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); err != nil && e == nil {
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		c.TrustedProxies = append(c.TrustedProxies, p)
	}
	return c
}

// a2aAgent makes t an agent that speaks A2A.
func (s *wiring) a2aAgent(t *gateway.Target, a config.Agent) error {
	push, dedupe := a.Push, a.Dedupe
	if push == "" {
		push = s.cfg.A2A.Push
	}
	if dedupe == "" {
		dedupe = s.cfg.A2A.Dedupe
	}
	forward := make([]string, len(a.ForwardHeaders))
	for i, name := range a.ForwardHeaders {
		forward[i] = http.CanonicalHeaderKey(name)
	}
	t.Transport = s.tasks
	bridge, err := s.bridge(t.Name, a)
	if err != nil {
		return err
	}
	t.A2A = &gateway.A2AAgent{
		DefaultVersion: a.DefaultVersion, DedupeByMessage: dedupe == config.DedupeMessage, Push: push == config.PushPassthrough, Forward: forward, Bridge: bridge,
	}
	return nil
}
