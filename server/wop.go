package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/http"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/eventlog"
	"github.com/agentbus/agentbus/openwop"
	"github.com/agentbus/agentbus/server/config"
)

// buildHost makes the host of the event wire. It stands on the public listener,
// behind the same authentication as the gateway (E2).
func (s *Server) buildHost() (err error) {
	key := hmac.New(sha256.New, s.installKey())
	key.Write([]byte("tokens of interrupts"))
	s.starts = newStarts(s)
	s.wop, err = openwop.New(openwop.Config{
		Store: takeover{s.store, s.alive}, Version: s.cfg.Version, Owner: s.owner, TokenKey: key.Sum(nil), Conformance: s.cfg.Conformance,
		Identify: func(r *http.Request) (agentbus.Principal, error) { return s.now().gateway.Caller(r) },
		Redact:   func() *eventlog.Redactor { return s.now().redacts },
		Lease:    s.cfg.Workers.Lease, InterruptTimeout: s.cfg.Interrupts.Timeout, MaxBody: int64(s.cfg.Limits.MaxBody), Logger: s.log,
		Calling:       func(e agentbus.Execution) ([]agentbus.CallRecord, agentbus.Micros) { return s.Live(), s.CapOf(e) },
		Conversations: s.starts, NoEscalation: s.cfg.Escalation == config.EscalationOff, Tools: s.cfg.Tools.Default,
	})
	return err
}
