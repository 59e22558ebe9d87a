package a2a

import (
	"context"
	"net/url"
	"strings"

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
	Minted bool   // the run was made for this request, or is that of the turn whose program sends it: its caller need not be one who names runs (G6)
	Base   string // URL of the agent's mount, such as https://bus.example.com/a2a/critic, without a slash at its end
}

// owner returns whose the tasks of the request are: its caller's. Who calls on behalf
// of others, as programs do, and agents that forward credentials, has those of each
// payer apart (A19, X34). No two callers and payers have the same owner.
func (r *Request) owner() string {
	caller, payer := r.Caller.ID, string(r.Payer)
	if payer != "" && payer != caller {
		return url.PathEscape(caller) + " " + url.PathEscape(payer)
	}
	if strings.ContainsAny(caller, " %") { // as that of two could read
		return url.PathEscape(caller)
	}
	return caller
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
