package server

import (
	"cmp"
	"context"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// VerifyHops compares the signed hops of a run with its calls (C16). It fails
// with CodeInvalidRequest when this bus has no key, so that nothing was signed, and
// with CodeRunNotFound for a run that nothing is known of.
func (s *Server) VerifyHops(ctx context.Context, run agentbus.RunID) (v identity.HopVerdict, err error) {
	w := s.now()
	if w.cfg.Trust.Key.IsZero() {
		return v, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "this bus has no key, so no hop was signed",
			Explain: &agentbus.Explain{Rule: "C16", Next: "set trust.key_file and trust.signed_hops"},
		}
	}
	signer, err := newSigner(&w.cfg.Trust)
	if err != nil {
		return v, err
	}
	h, err := w.hops(signer)
	if err != nil {
		return v, err
	}
	kept, err := s.store.HopTokens(ctx, run)
	if err != nil {
		return v, err
	}
	calls, err := s.store.Calls(ctx, run)
	if err != nil {
		return v, err
	}
	if len(kept) == 0 && len(calls) == 0 {
		if executions, err := s.store.Executions(ctx, run); err != nil || len(executions) == 0 {
			return v, cmp.Or(err, errNoRun)
		}
	}
	return h.VerifyRun(ctx, run, kept, calls), nil
}

// errNoRun keeps a run that is not here from passing for one in order.
var errNoRun error = &agentbus.Error{
	Code: agentbus.CodeRunNotFound, Message: "there is no such run in this store",
	Explain: &agentbus.Explain{Next: "see agentbus runs; --config names another store"},
}
