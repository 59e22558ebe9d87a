package identity

import (
	"context"
	"fmt"

	"github.com/agentbus/agentbus"
)

// A HopLine is one signed hop of a run that is as it must be: who called whom,
// and who pays.
type HopLine struct {
	Caller  string         `json:"caller"`
	Agent   string         `json:"agent"`
	Payer   agentbus.Payer `json:"payer"`
	Hop     int            `json:"hop"`
	MaxHops int            `json:"max_hops"`
	Issuer  string         `json:"issuer"`
	Before  string         `json:"before,omitempty"` // the request id of the call whose hop it names; "": none, or another bus's
}

// A HopVerdict is what a verification of the signed hops of a run found (C16).
type HopVerdict struct {
	Run      agentbus.RunID `json:"run"`
	Hops     []HopLine      `json:"hops"`
	Unsigned int            `json:"unsigned"`        // calls of chains without a signed hop: made while hops were not signed
	Fault    string         `json:"fault,omitempty"` // the first that is not what it must be; "": all are
}

// VerifyRun compares the signed hops of a run with its calls: each must be signed
// by this bus or by one that it trusts, name a hop before it that was kept, and
// say of its call who called, at which hop, and who pays.
func (h *Hops) VerifyRun(ctx context.Context, run agentbus.RunID, kept []agentbus.HopToken, calls []agentbus.CallRecord) HopVerdict {
	v := HopVerdict{Run: run, Hops: []HopLine{}}
	byRequest, known := map[string]*agentbus.CallRecord{}, map[string]*agentbus.HopToken{}
	for i := range calls {
		byRequest[calls[i].RequestID] = &calls[i]
	}
	signed := map[string]bool{}
	for i := range kept {
		t := &kept[i]
		hop, err := h.read(ctx, t.Token)
		if err != nil {
			v.Fault = fmt.Sprintf("a hop of request %s: %v", t.RequestID, err)
			return v
		}
		before := known[hop.Before]
		known[HopDigest(t.Token)] = t
		if !t.Sent {
			continue
		}
		line := HopLine{Payer: agentbus.Payer(hop.Subject), Hop: hop.Hop, MaxHops: hop.MaxHops, Issuer: hop.Issuer, Agent: hop.Audience}
		if len(hop.Path) > 0 {
			line.Caller = hop.Path[len(hop.Path)-1]
		}
		if before != nil {
			line.Before = before.RequestID
		}
		call := byRequest[t.RequestID] // nil: of an attempt that another one followed
		if fault := h.belies(&hop, call, before != nil); fault != "" {
			v.Fault = fmt.Sprintf("the hop of request %s %s", t.RequestID, fault)
			return v
		}
		if call != nil {
			line.Agent, signed[t.RequestID] = call.Agent, true
		}
		v.Hops = append(v.Hops, line)
	}
	for i := range calls {
		if c := &calls[i]; c.Chain != nil && c.Attempts > 0 && !signed[c.RequestID] {
			v.Unsigned++
		}
	}
	return v
}

// belies says where a hop says something else than its call; "": nowhere.
func (h *Hops) belies(hop *agentbus.Hop, call *agentbus.CallRecord, follows bool) string {
	switch {
	case len(hop.Path) != hop.Hop:
		return "is not as far as its path"
	case hop.Before != "" && !follows:
		return "names a hop before it that was not kept"
	case call == nil:
	case call.Chain == nil || call.Chain.Hop != hop.Hop:
		return "is of another place in the chain than its call"
	case hop.Path[len(hop.Path)-1] != h.cfg.Signer.issuer+"#"+call.Caller:
		return "names another caller than its call"
	case hop.Before == "" && hop.Subject != string(call.Payer):
		return "names another payer than its call"
	}
	return ""
}
