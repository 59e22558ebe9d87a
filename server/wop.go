package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/openwop"
)

// buildHost makes the host of the event wire. It stands on the public listener,
// behind the same authentication as the gateway (E2).
func (s *Server) buildHost() (err error) {
	key := hmac.New(sha256.New, s.store.InstallKey())
	key.Write([]byte("tokens of interrupts"))
	s.wop, err = openwop.New(openwop.Config{
		Store: takeover{s.store, s.alive}, Version: s.cfg.Version, Owner: s.owner, TokenKey: key.Sum(nil), Conformance: s.cfg.Conformance,
		Identify: func(r *http.Request) (agentbus.Principal, error) { return s.now().gateway.Caller(r) },
		Redact:   func() *eventlog.Redactor { return s.now().redactor() },
		Lease:    s.cfg.Workers.Lease, InterruptTimeout: s.cfg.Interrupts.Timeout, MaxBody: int64(s.cfg.Limits.MaxBody), Logger: s.log,
	})
	return err
}

// redactor takes the credentials of the configuration in force out of what is
// stored of runs (E28).
func (s *wiring) redactor() *eventlog.Redactor {
	s.redactOnce.Do(func() {
		var secrets []eventlog.Secret
		add := func(id string, c agentbus.Credential) { secrets = append(secrets, eventlog.Secret{ID: id, Value: c}) }
		for name, a := range s.cfg.Agents {
			add("agents."+name, a.Authorization)
			for header, value := range a.Headers {
				add("agents."+name+"."+header, value)
			}
		}
		for _, k := range s.cfg.Config.Keys {
			add("keys."+k.ID, k.Secret)
		}
		add("admin.token", s.cfg.Admin.Token)
		s.redact = eventlog.NewRedactor(secrets...)
	})
	return s.redact
}
