package server

import (
	"encoding/hex"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
)

// configuredSecrets returns the credentials of the configuration, by where they
// stand in it (E28).
func (s *wiring) configuredSecrets() (all []eventlog.Secret) {
	add := func(id string, c agentbus.Credential) {
		if !c.IsZero() {
			all = append(all, eventlog.Secret{ID: id, Value: c})
		}
	}
	for name, a := range s.cfg.Agents {
		add("agents."+name, a.Authorization)
		for _, c := range secrets(a.Headers) {
			add("agents."+name+".headers", c)
		}
	}
	for _, k := range s.cfg.Config.Keys {
		add("keys."+k.ID, k.Secret)
	}
	for _, k := range s.cfg.Keys {
		add("keys."+k.Principal.ID, k.Secret)
	}
	if key := s.cfg.Sealing.Key; !key.IsZero() {
		add("sealing", agentbus.NewCredential(hex.EncodeToString([]byte(key.Reveal())))) //nolint:forbidigo // as it is written in its file, to find it (E28)
	}
	add("admin.token", s.cfg.Admin.Token)
	return all
}

// redacting returns what takes them out of a run, and the credentials that came
// with it.
func (s *wiring) redacting(peers []Peer, forwarded ...agentbus.Credential) *eventlog.Redactor {
	var more []eventlog.Secret
	for i := range peers {
		if !peers[i].Key.IsZero() {
			more = append(more, eventlog.Secret{ID: "agents." + peers[i].Name, Value: peers[i].Key})
		}
	}
	for _, c := range forwarded {
		if !c.IsZero() {
			more = append(more, eventlog.Secret{ID: "forwarded", Value: c})
		}
	}
	if len(more) == 0 {
		return s.redacts
	}
	return s.redacts.With(more...)
}
