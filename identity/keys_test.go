package identity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// store is a set of keys that can fail.
type store struct {
	keys map[agentbus.Digest]agentbus.APIKey
	err  error
}

func (s store) KeyByHash(_ context.Context, h agentbus.Digest) (agentbus.APIKey, bool, error) {
	k, ok := s.keys[h]
	return k, ok, s.err
}

var (
	alice = agentbus.Principal{ID: "alice", Role: agentbus.PrincipalUser}
	relay = agentbus.Principal{ID: "relay", Role: agentbus.PrincipalUser, InterAgent: true}
)

// TestIdentify: G4, who an Authorization value stands for.
func TestIdentify(t *testing.T) {
	t.Parallel()
	secret, key := identity.NewKey(relay, time.Now())
	keys, err := identity.New(identity.Config{
		Static: []identity.StaticKey{{Principal: alice, Secret: agentbus.NewCredential("sk-alice")}},
		Keys:   store{keys: map[agentbus.Digest]agentbus.APIKey{key.Hash: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]agentbus.Principal{
		"Bearer sk-alice":                   alice,
		"bearer sk-alice":                   alice,
		"BEARER   sk-alice":                 alice,
		"Bearer " + secret.Reveal():         relay,
		"Bearer sk-bob":                     {},
		"Bearer sk-alice ":                  {},
		"Bearer sk-alic":                    {},
		"Bearer ":                           {},
		"Bearer":                            {},
		"sk-alice":                          {},
		"Basic sk-alice":                    {},
		"":                                  {},
		"Bearer " + key.Handle:              {},
		"Bearer " + strings.Repeat("x", 99): {},
	} {
		got, err := keys.Identify(t.Context(), agentbus.NewCredential(value))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
		if (err == nil) != (want != agentbus.Principal{}) || err != nil && agentbus.CodeOf(err) != agentbus.CodeUnauthenticated {
			t.Errorf("%q: %v", value, err)
		}
		if err != nil && value != "" && len(value) > 10 && strings.Contains(err.Error(), value[7:]) {
			t.Errorf("%q: the error tells the credential: %v", value, err) // P19
		}
	}
}

// TestStoreFails: a store that cannot be asked is not a caller that is unknown.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	broken := &agentbus.Error{Code: agentbus.CodeStoreUnavailable, Message: "gone"}
	keys, err := identity.New(identity.Config{Keys: store{err: broken}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Identify(t.Context(), agentbus.NewCredential("Bearer x")); !errors.Is(err, broken) {
		t.Errorf("%v, want the store's error", err)
	}
	none, err := identity.New(identity.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Identify(t.Context(), agentbus.NewCredential("Bearer x")); agentbus.CodeOf(err) != agentbus.CodeUnauthenticated {
		t.Errorf("without any keys: %v", err)
	}
}

// TestAHashThatIsNotTheKeys: G4, the store's word is checked once more.
func TestAHashThatIsNotTheKeys(t *testing.T) {
	t.Parallel()
	asked := identity.Hash(agentbus.NewCredential("x"))
	keys, err := identity.New(identity.Config{Keys: store{keys: map[agentbus.Digest]agentbus.APIKey{asked: {Principal: alice}}}})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := keys.Identify(t.Context(), agentbus.NewCredential("Bearer x")); err == nil {
		t.Errorf("a key of another hash let %v in", p)
	}
}

// TestNew: keys that cannot be told apart are refused, without telling them.
func TestNew(t *testing.T) {
	t.Parallel()
	secret := agentbus.NewCredential("same-secret")
	for name, static := range map[string][]identity.StaticKey{
		"no id":       {{Secret: secret}},
		"no secret":   {{Principal: alice}},
		"same secret": {{Principal: alice, Secret: secret}, {Principal: relay, Secret: secret}},
	} {
		if _, err := identity.New(identity.Config{Static: static}); err == nil || strings.Contains(err.Error(), "same-secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNewKey: G4, a key is a secret that is shown once, and a hash.
func TestNewKey(t *testing.T) {
	t.Parallel()
	now := time.Now()
	secret, key := identity.NewKey(alice, now)
	other, _ := identity.NewKey(alice, now)
	if secret.Reveal() == other.Reveal() || len(secret.Reveal()) < 40 {
		t.Errorf("secrets %q and %q", secret.Reveal(), other.Reveal())
	}
	want := agentbus.APIKey{Handle: secret.Reveal()[:len(key.Handle)], Hash: identity.Hash(secret), Principal: alice, Created: now}
	if diff := cmp.Diff(want, key); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	if len(key.Handle) > 12 {
		t.Errorf("the handle %s tells too much", key.Handle)
	}
}
