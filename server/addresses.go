package server

import (
	"github.com/agentbus/agentbus/a2a"
)

// buildAddresses builds what tells others where the agents of this bus are (C36),
// and what finds theirs (C35).
func (s *wiring) buildAddresses() error {
	var err error
	if s.dialer, err = a2a.NewDialer(a2a.DialerConfig{AllowHosts: s.cfg.Resolver.AllowHosts}); err != nil {
		return err
	}
	if s.resolver, err = a2a.NewResolver(a2a.ResolverConfig{Dialer: s.dialer, Domains: s.cfg.Resolver.Domains}); err != nil {
		return err
	}
	c := a2a.DirectoryConfig{PublicURL: s.cfg.PublicURL, Version: s.cfg.Version}
	for _, t := range s.router.Targets() {
		if !t.Address.IsZero() {
			c.Agents = append(c.Agents, a2a.Published{Address: t.Address, Agent: t.Name, Streaming: true, Extensions: extensions})
		}
	}
	s.buildForeign()
	s.found, err = a2a.NewDirectory(c)
	return err
}
