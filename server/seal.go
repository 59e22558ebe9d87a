package server

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
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

// installKey returns the key of this installation (P19): that of the configuration
// that the bus was started with, else the one that was made with the store.
func (s *Server) installKey() []byte {
	if key := s.cfg.InstallKey; !key.IsZero() {
		return []byte(key.Reveal()) //nolint:forbidigo // the key under which conversations are named (P19)
	}
	return s.store.InstallKey()
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
	return s.accepted(ctx, plain, payer)
}

// accepted returns a credential that was sealed, once it is known to be that of
// payer. Without one it says why.
func (s *wiring) accepted(ctx context.Context, plain []byte, payer agentbus.Payer) (c agentbus.Credential, why string, err error) {
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

// fleeting returns a cipher whose key is nowhere but in this process: what is sealed
// with it can be opened until the process ends.
func fleeting() (cipher.AEAD, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails since Go 1.24
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealTask returns a credential as it is stored with a task: under the sealing key,
// or, where there is none, for as long as this process lives, so that the task goes
// on when somebody decides what it waits for (R22).
func (s *Server) sealTask(task string, c agentbus.Credential) ([]byte, error) {
	sealed, err := s.now().seal(agentbus.ExecutionID(task), c)
	if err != nil || sealed != nil || c.IsZero() {
		return sealed, err
	}
	return s.fleeting.Seal(nil, nil, []byte(c.Reveal()), []byte(task)), nil //nolint:forbidigo,gosec // sealed (P19); the cipher makes its nonce
}

// openTask returns that credential, unless it cannot be opened here, or is not
// accepted any more.
func (s *Server) openTask(ctx context.Context, task string, payer agentbus.Payer, sealed []byte) (c agentbus.Credential, ok bool, err error) {
	var why string
	if plain, failed := s.fleeting.Open(nil, nil, sealed, []byte(task)); failed == nil {
		c, why, err = s.now().accepted(ctx, plain, payer)
	} else {
		c, why, err = s.now().opened(ctx, sealed, agentbus.ExecutionID(task), payer)
	}
	return c, err == nil && why == "", err
}

// waiting is the halt of a run that needs the credential of its payer.
func waiting(payer agentbus.Payer, why string) *agentbus.Halt {
	return &agentbus.Halt{Kind: agentbus.HaltWaitingAuth, Reason: string(payer) + " pays, and " + why}
}
