package identity_test

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
	"github.com/agentbus/agentbus/identity"
)

// A Chain asks one identifier after the other. Here there is one, for API keys;
// NewJWT, NewIntrospection and NewCertificates make others.
func Example() {
	keys, err := identity.New(identity.Config{Static: []identity.StaticKey{
		{Principal: agentbus.Principal{ID: "alice"}, Secret: agentbus.NewCredential("alice-secret")},
		{Principal: agentbus.Principal{ID: "relay", InterAgent: true}, Secret: agentbus.NewCredential("relay-secret")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	chain, err := identity.NewChain(identity.ChainConfig{Order: []identity.Identifier{keys}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, authorization := range []string{"Bearer relay-secret", "Bearer somebody-else"} {
		p, err := chain.Identify(context.Background(), agentbus.NewCredential(authorization))
		fmt.Printf("%q %t %q\n", p.ID, p.InterAgent, agentbus.CodeOf(err))
	}
	// Output:
	// "relay" true ""
	// "" false "unauthenticated"
}
