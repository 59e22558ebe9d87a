package server

import (
	"context"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// VerifyHops compares the signed hops of a run with its calls (C16). It fails
// with CodeInvalidRequest when this bus has no key, so that nothing was signed.
func (s *Server) VerifyHops(ctx context.Context, run agentbus.RunID) (v identity.HopVerdict, err error) {
	w := s.now()
	if w.cfg.Trust.Key.IsZero() {
		return v, &agentbus.Error{
			Code: agentbus.CodeInvalidRequest, Message: "this bus has no key, so no hop was signed",
			Explain: &agentbus.Explain{Rule: "C16", Next: "set trust.key_file and trust.signed_hops"},
		}
	}
	signer, err := identity.NewSigner(identity.SignerConfig{Issuer: w.cfg.Trust.Issuer, Seed: w.cfg.Trust.Key, KeyID: w.cfg.Trust.KeyID})
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
	return h.VerifyRun(ctx, run, kept, calls), nil
}
