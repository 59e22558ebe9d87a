package identity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// B2: a call-scoped token stands for its turn until the turn ends, and for
// nothing anywhere else.
func TestCallTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tokens identity.CallTokens
		scope := agentbus.Scope{Payer: "alice", Lineage: agentbus.Lineage{Run: "r", Turn: "r.t0.a"}}
		one, revoke := tokens.Mint(scope, time.Now().Add(time.Hour))
		two, _ := tokens.Mint(scope, time.Now().Add(time.Minute))
		asks := func(token agentbus.Credential) (ours bool, code agentbus.Code) {
			s, ours, err := tokens.Scope(agentbus.NewCredential("Bearer " + token.Reveal()))
			if err == nil && ours && s.Payer != "alice" {
				t.Errorf("it stands for %q", s.Payer)
			}
			return ours, agentbus.CodeOf(err)
		}
		for _, token := range []agentbus.Credential{one, two} {
			if ours, code := asks(token); !ours || code != "" {
				t.Errorf("a token that counts: %v, %q", ours, code)
			}
		}
		if ours, code := asks(agentbus.NewCredential("sk-another")); ours || code != "" {
			t.Errorf("another credential: %v, %q", ours, code)
		}
		keys, err := identity.New(identity.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Identify(t.Context(), agentbus.NewCredential("Bearer "+one.Reveal())); agentbus.CodeOf(err) != agentbus.CodeUnauthenticated {
			t.Errorf("elsewhere: %v", err)
		}
		revoke()
		<-time.After(2 * time.Minute)
		for _, token := range []agentbus.Credential{one, two} {
			if ours, code := asks(token); !ours || code != agentbus.CodeUnauthenticated {
				t.Errorf("a token whose turn is over: %v, %q", ours, code)
			}
		}
	})
}
