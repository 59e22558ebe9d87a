package a2a

import (
	"context"

	"github.com/agentbus/agentbus"
)

// A Request is what the stages of the gateway have found out about a request
// before they hand it to the face of an agent.
type Request struct {
	Agent   string             // its configured name
	Caller  agentbus.Principal // who sends
	Payer   agentbus.Payer     // who is billed
	Lineage agentbus.Lineage   // as it is forwarded: its depth counts the gateway (P8)
	// Evidence is what was verified of the message (C22): who makes the call of
	// its agent hands it to the gateway with the call.
	Evidence []agentbus.Evidence
	// Hop is the signed hop that the message came with, verified (C16): the call of its
	// agent goes on behind it, and within what it leaves. "": there was none.
	Hop    string
	Minted bool   // the run was made for this request: it is nobody else's
	Base   string // URL of the agent's mount, such as https://bus.example.com/a2a/critic, without a slash at its end
}

type requestKey struct{}

// NewContext returns ctx with r, for the face to find.
func NewContext(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// FromContext returns the request that NewContext put into ctx.
func FromContext(ctx context.Context) (r *Request, found bool) {
	r, found = ctx.Value(requestKey{}).(*Request)
	return r, found
}
