package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/agentbus/agentbus"
)

// sealing returns the cipher of sealed credentials: AES-256-GCM with a random
// nonce. ok is false without a sealing key.
func (s *wiring) sealing() (aead cipher.AEAD, ok bool, err error) {
	if s.cfg.Sealing.Key.IsZero() {
		return nil, false, nil
	}
	block, err := aes.NewCipher([]byte(s.cfg.Sealing.Key.Reveal())) //nolint:forbidigo // the key under which credentials are sealed (P19)
	if err != nil {
		return nil, false, fmt.Errorf("sealing key: %w", err)
	}
	aead, err = cipher.NewGCMWithRandomNonce(block)
	return aead, err == nil, err
}

// seal returns a credential as it is stored with an execution (R18), bound to
// that execution: none without a sealing key.
func (s *wiring) seal(id agentbus.ExecutionID, c agentbus.Credential) ([]byte, error) {
	aead, ok, err := s.sealing()
	if !ok || c.IsZero() {
		return nil, err
	}
	return aead.Seal(nil, nil, []byte(c.Reveal()), []byte(id)), nil //nolint:forbidigo,gosec // sealed (P19); the cipher makes its nonce
}

// unsealed returns the credential that is stored with e, once it is known to be
// that of who pays for e. Without one it says why, for who has one.
func (s *wiring) unsealed(ctx context.Context, e *agentbus.Execution) (c agentbus.Credential, why string, err error) {
	sealed, found, err := s.store.Sealed(ctx, e.ID)
	if err != nil {
		return c, "", err
	}
	if !found {
		return c, "its credential is not stored", nil
	}
	return s.opened(ctx, sealed, e.ID, e.Payer)
}

// opened returns the credential that was sealed for an id, once it is known to be
// that of payer. Without one it says why.
func (s *wiring) opened(ctx context.Context, sealed []byte, id agentbus.ExecutionID, payer agentbus.Payer) (c agentbus.Credential, why string, err error) {
	aead, ok, err := s.sealing()
	switch {
	case err != nil:
		return c, "", err
	case !ok:
		return c, "its credential is sealed, and there is no sealing key here", nil
	}
	plain, err := aead.Open(nil, nil, sealed, []byte(id))
	if err != nil {
		return c, "its credential was sealed under another key", nil //nolint:nilerr // the reason is the error
	}
	c = agentbus.NewCredential(string(plain))
	p, err := s.identity.Identify(ctx, c)
	switch refused := agentbus.CodeOf(err) == agentbus.CodeUnauthenticated; {
	case err != nil && !refused:
		return agentbus.Credential{}, "", errors.Join(errors.New("identify the payer of a sealed credential"), err)
	case refused, agentbus.Payer(p.ID) != payer:
		return agentbus.Credential{}, "its sealed credential is not accepted any more", nil
	}
	return c, "", nil
}

// waiting is the halt of a run that needs the credential of its payer.
func waiting(payer agentbus.Payer, why string) *agentbus.Halt {
	return &agentbus.Halt{Kind: agentbus.HaltWaitingAuth, Reason: string(payer) + " pays, and " + why}
}
