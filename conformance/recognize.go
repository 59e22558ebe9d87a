package conformance

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/agentbus/agentbus"
)

// recognize finds out with two calls whether the endpoint speaks the protocol at
// all: one of a turn, and one at the limit of depth. An endpoint that keeps any
// part of it shows one of its headers, or refuses the second in its words.
func (s *session) recognize(ctx context.Context) error {
	var last *answer
	for _, lines := range [][]string{nil, {depth(s.cfg.DepthLimit)}} {
		p := s.probe(ctx)
		a := p.send(p.ask("text", p.turn(lines...)...))
		p.close()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(a.err, errNoAnswer):
			return &agentbus.Error{
				Code: agentbus.CodeAgentUnavailable, Message: "nothing that speaks HTTP answers at " + s.redact(s.base.String()), Err: a.err,
				Explain: &agentbus.Explain{Next: "start the endpoint, or give another URL"},
			}
		case a.status == http.StatusUnauthorized && speaks(a):
			return &agentbus.Error{
				Code: agentbus.CodeUnauthenticated, Message: "the endpoint does not know the key",
				Explain: &agentbus.Explain{Next: "put a key of it into the variable of --key-env (AGENTBUS_TOKEN)"},
			}
		case speaks(a):
			return nil
		}
		last = a
	}
	return misuse("what answers at "+s.redact(s.base.String())+" shows nothing of the bus protocol: a call with a lineage got "+s.redact(last.String()),
		"give the public surface of a bus; to check this endpoint all the same, register an agent there (--agent) or choose checks (--only)")
}

// speaks reports whether an answer is one of the protocol, however wrong.
func speaks(a *answer) bool {
	for name := range a.header {
		if strings.HasPrefix(name, "X-Tangle-") || strings.HasPrefix(name, "X-Agentbus-") {
			return true
		}
	}
	return a.code() == string(agentbus.CodeDepthExceeded)
}
