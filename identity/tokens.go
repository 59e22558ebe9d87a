package identity

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/agentbus/agentbus"
)

// CallTokens are the tokens with which programs call back as the turn that they
// serve (B2). They live in memory, from [CallTokens.Mint] to the end of the
// turn, and no [Chain] knows them: one proves nothing anywhere but at the door
// of the gateway, and cannot be forwarded. The zero CallTokens is empty and
// ready; it is safe for concurrent use.
type CallTokens struct {
	mu     sync.Mutex
	scopes map[agentbus.Digest]callToken // by the hash of the token
}

type callToken struct {
	scope   agentbus.Scope
	expires time.Time
}

// callTokenPrefix begins every token of [CallTokens.Mint].
const callTokenPrefix = "abturn_"

// Mint makes a token that stands for s until it expires or revoke is called,
// which may be called again.
func (c *CallTokens) Mint(s agentbus.Scope, expires time.Time) (token agentbus.Credential, revoke func()) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	token = agentbus.NewCredential(callTokenPrefix + base64.RawURLEncoding.EncodeToString(b[:]))
	h := Hash(token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scopes == nil {
		c.scopes = map[agentbus.Digest]callToken{}
	}
	c.scopes[h] = callToken{s, expires}
	return token, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.scopes, h)
	}
}

// Scope returns what an Authorization value stands for. ours is false for a
// value that is no such token. It fails with CodeUnauthenticated for a token
// whose turn is over.
func (c *CallTokens) Scope(authorization agentbus.Credential) (s agentbus.Scope, ours bool, err error) {
	token, ok := authorization.Token()
	if !ok || !strings.HasPrefix(token.Reveal(), callTokenPrefix) { //nolint:forbidigo // a credential is verified, by its form (P19)
		return s, false, nil
	}
	c.mu.Lock()
	t, ok := c.scopes[Hash(token)]
	c.mu.Unlock()
	if !ok || time.Now().After(t.expires) {
		return s, true, bad("turn_over", "the turn that this token belongs to is over", "a program may call for as long as it serves its turn; start what it left running from a turn of its own")
	}
	return t.scope, true, nil
}
